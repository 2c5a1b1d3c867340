//! Idioms of configurations and the routes that they become.

use toml::Value;

/// The configuration of an `http` block, and all that has no counterpart.
pub(super) fn import(http: &str) -> (toml::Table, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("nginx.conf");
    std::fs::write(&file, format!("http {{\n{http}\n}}\n")).unwrap();
    let conversion = super::convert(&file, |name| name.eq_ignore_ascii_case("server")).unwrap();
    let shown = format!("{}/", directory.path().display());
    let text = conversion.text();
    let named = conversion.unconverted.iter().map(|one| one.to_string().replace(&shown, "")).collect();
    (text.replace(&shown, "").parse().unwrap_or_else(|e| panic!("{text}: {e}")), named)
}

/// The forwarding rules of a site's routes.
pub(super) fn rules(site: &toml::Table) -> Vec<&toml::Table> {
    let routes = site.get("route").and_then(Value::as_array).into_iter().flatten();
    routes.filter_map(|route| route.get("proxy")?.as_table()).collect()
}

/// The directives that nothing guards now.
pub(super) fn marked(named: &[String]) -> Vec<&str> {
    named.iter().map(String::as_str).filter(|line| line.contains("UNGUARDED")).collect()
}

/// The first site of a server with this content, the whole configuration, and the directives without counterpart.
pub(super) fn converted(http: &str, server: &str) -> (Value, toml::Table, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("nginx.conf");
    let text = format!("http {{ {http} server {{ listen 443 ssl; server_name a.example; {server} }} }}");
    std::fs::write(&file, text).unwrap();
    let conversion = super::convert(&file, |name| name.eq_ignore_ascii_case("server")).unwrap();
    let named = conversion.unconverted.iter().filter(|one| one.loss > crate::Loss::Cosmetic);
    let named = named.map(ToString::to_string).collect();
    let root: toml::Table = conversion.text().parse().unwrap_or_else(|error| panic!("{error}: {}", conversion.text()));
    (root["site"][0].clone(), root, named)
}

/// The routes of a server, which converts without loss.
#[track_caller]
pub(super) fn routes(http: &str, server: &str) -> Vec<Value> {
    let (site, _, named) = converted(http, server);
    assert!(named.is_empty(), "{named:#?}");
    site.get("route").and_then(Value::as_array).cloned().unwrap_or_default()
}

#[track_caller]
pub(super) fn is(route: &Value, expected: &str) {
    let expected: toml::Table = expected.parse().unwrap();
    assert_eq!(*route, Value::Table(expected));
}

#[test]
fn each_kind_of_location_keeps_its_sign() {
    let server = "location / { return 200; } location = /a { return 201; } location ^~ /b/ { } \
                  location ~ ^/c { return 203; } location ~* \\.d$ { return 204; } location @e { return 205; }";
    let signs: Vec<_> = routes("", server)
        .iter()
        .map(|route| route.get("path").or(route.get("name")).unwrap().as_str().unwrap().to_owned())
        .collect();
    assert_eq!(signs, ["/", "= /a", "^~ /b/*", "~ ^/c", r"~ (?i)\.d$", "@e"]);
}

#[test]
fn constants_are_folded_into_the_target() {
    let all =
        routes("", "location / { set $app 10.0.0.7; set $port 80; set $proto http; proxy_pass $proto://$app:$port; }");
    is(&all[0], "path = '/'\nproxy = { to = 'http://10.0.0.7:80', host = 'upstream', max_body = '1MiB' }");
}

#[test]
fn a_map_chooses_among_upstreams() {
    let http = "map $http_x_beta $pool { default one; yes two; } upstream one { server 10.0.0.1; } upstream two { server 10.0.0.2; }";
    let (site, root, named) = converted(http, "location / { proxy_pass http://$pool; }");
    assert!(named.is_empty(), "{named:#?}");
    assert_eq!(site["route"][0]["proxy"]["to"].as_str(), Some("{map.pool}"));
    assert_eq!(root["map"][0]["entries"]["yes"].as_str(), Some("two"));
    assert_eq!(root["upstream"].as_array().map(Vec::len), Some(2));
}

#[test]
fn files_stand_inside_of_what_is_forwarded() {
    let all = routes("", "root /srv; location / { proxy_pass http://10.0.0.1; location /static/ { expires 1h; } }");
    is(&all[0]["route"][0], "path = '/static/*'\nfiles = true\ncache_control = 'max-age=3600'");
}

#[test]
fn paths_of_urls_replace_the_path_of_the_location() {
    let proxy = |body: &str| routes("", body);
    let stripped = proxy("location /api/ { proxy_pass http://10.0.0.1/v1/; }");
    assert_eq!(stripped[0]["proxy"]["strip_prefix"].as_bool(), Some(true));
    assert_eq!(stripped[0]["proxy"]["to_prefix"].as_str(), Some("/v1"));
    let exact = proxy("location = /x { proxy_pass http://10.0.0.1/y; }");
    assert_eq!(exact[0]["rewrite"].as_str(), Some("/sealion-import-1/y"));
    assert_eq!(exact[1]["path"].as_str(), Some("^~ /sealion-import-1/"));
    assert_eq!(exact[1]["internal"].as_bool(), Some(true));
    let text = proxy("location /api { proxy_pass http://10.0.0.1/v1; }");
    assert_eq!(text[0]["route"][0]["path"].as_str(), Some("~ ^/api(.*)$"));
    assert_eq!(text[0]["route"][0]["rewrite"].as_str(), Some("/sealion-import-1/v1{1}"));
}

#[test]
fn a_route_that_lies_elsewhere_has_the_guards_of_its_location() {
    let all = routes(
        "",
        "allow 10.0.0.0/8; deny all; location = /x { allow 192.0.2.1; deny all; proxy_pass http://10.0.0.1/y; }",
    );
    assert_eq!(all[0]["access"], all[1]["access"]);
    assert_eq!(all[1]["access"]["allow"].to_string(), r#"["192.0.2.1"]"#);
}

#[test]
fn conditions_become_routes_within_the_location() {
    for (condition, table) in [
        ("$request_method = POST", "value = { '{method}' = 'POST' }"),
        ("$request_method !~ ^(GET|HEAD)$", "not.value = { '{method}' = '~ ^(GET|HEAD)$' }"),
        ("$http_user_agent ~* (bot|spider)", "header.user-agent = '~* (bot|spider)'"),
        ("$cookie_beta = yes", "cookie.beta = 'yes'"),
        ("$arg_debug", "not.value.'{raw_query.debug}' = ['', '0']"),
        ("$host != a.example", "not.host = 'a.example'"),
        ("$scheme = http", "value = { '{scheme}' = 'http' }"),
        (
            "$http_x_forwarded_proto = \"\"",
            "any = [{ header.x-forwarded-proto = false }, { header.x-forwarded-proto = '' }]",
        ),
    ] {
        let all =
            routes("", &format!("location / {{ if ({condition}) {{ return 410; }} proxy_pass http://10.0.0.1; }}"));
        is(&all[0]["route"][0], &format!("respond = 410\n[match]\n{table}"));
    }
}

#[test]
fn variables_that_conditions_set_have_a_value_for_each_case() {
    let server = "set $go 0; if ($http_user_agent ~ Mobile) { set $go 1; } if ($cookie_full) { set $go 0; } \
                  location / { if ($go = 1) { return 302 /m; } return 200; }";
    let all = routes("", server);
    let condition = &all[0]["route"][0]["match"];
    assert_eq!(
        condition.to_string(),
        r#"{ all = [{ header = { user-agent = "~ Mobile" } }, { not = { all = [{ cookie = { full = true } }, { not = { cookie = { full = ["", "0"] } } }] } }] }"#
    );
}

#[test]
fn what_a_server_asks_goes_before_all_its_locations() {
    let server =
        "if ($host = www.a.example) { return 301 https://a.example$request_uri; } location = /x { return 204; }";
    let all = routes("", server);
    assert_eq!(all[0]["redirect"]["to"].as_str(), Some("https://a.example{uri}"));
    assert_eq!(all[1]["path"].as_str(), Some("~ ^/"), "locations lie behind it");
    assert_eq!(all[1]["route"][0]["path"].as_str(), Some("= /x"));
}

#[test]
fn a_server_that_returns_has_no_other_route() {
    let all = routes("", "return 301 https://b.example$request_uri; location /x { return 204; }");
    assert_eq!(all.len(), 1);
    is(&all[0], "path = '/'\nredirect = { to = 'https://b.example{uri}', status = 301 }");
}

#[test]
fn returns_answer() {
    for (returns, route) in [
        ("404", "respond = 404"),
        ("403", "deny = true"),
        (
            "200 '{\"a\":1}'",
            "media_types = { '*' = 'text/plain' }\nrespond = { status = 200, text = '{{\"a\":1}}', type = 'by-name' }",
        ),
        ("302 /x", "redirect = { to = '/x', status = 302, query = 'drop' }"),
        ("301 /x$is_args$args", "redirect = { to = '/x', status = 301 }"),
    ] {
        is(&routes("", &format!("location /a {{ return {returns}; }}"))[0], &format!("path = '/a'\n{route}"));
    }
}

#[test]
fn files_are_tried() {
    for (tries, route) in [
        ("$uri $uri/ =404", "try = ['{path}', '{path}/', '=404']"),
        ("$uri $uri.html $uri/ /index.html", "try = ['{path}', '{path}.html', '{path}/', '/index.html?']"),
        ("$uri @app", "try = ['{path}', '@app']\nroute = [{ path = '~ /$', try = ['@app'] }]"),
        ("/nonexistent @app", "try = ['@app']"),
        ("$uri $uri/ /index?q=$uri&$args", "try = ['{path}', '{path}/', '/index?q={path}&{query}']"),
    ] {
        let server = format!("location / {{ try_files {tries}; }} location @app {{ return 204; }}");
        is(&routes("", &server)[0], &format!("path = '/'\n{route}"));
    }
}

#[test]
fn a_front_script_is_run_by_the_route_that_has_it() {
    for php in [r"\.php$", r"^/index\.php(/|$)"] {
        let server = format!(
            "root /srv; index index.php; location / {{ try_files $uri $uri/ /index.php?$args; }} \
             location ~ {php} {{ try_files $uri =404; fastcgi_pass unix:/run/php.sock; }}"
        );
        let (site, _, _) = converted("", &server);
        assert_eq!(site["index"].to_string(), r#"["index.php"]"#);
        let all = routes("", &server);
        assert_eq!((all.len(), all[0]["try"].to_string()), (2, r#"["{path}", "{path}/", "/index.php"]"#.to_owned()));
        assert_eq!(all[1]["proxy"]["fastcgi"].to_string(), "{}");
    }
}

#[test]
fn rewrites_stand_in_their_order() {
    let server = "location /a/ { rewrite ^/a/old$ /a/new permanent; rewrite ^/a/x/(.*)$ /b/$1 last; rewrite ^/a/y/(.*) /$1 break; \
                  proxy_pass http://10.0.0.1; }";
    let all = routes("", server);
    is(&all[0]["route"][0], "path = '~ ^/a/old$'\nredirect = { to = '/a/new', status = 301 }");
    is(&all[0]["route"][1], "path = '~ ^/a/x/(.*)$'\nrewrite = '/b/{1}'");
    is(&all[0]["route"][2], "path = '~ ^/a/y/(.*)'\nrewrite = '/sealion-import-1/{1}'");
}

#[test]
fn parts_of_a_prefix_leave_paths_to_expressions() {
    let server = "location / { rewrite ^/a/(.*)$ /b/$1 last; } location ~ \\.bak$ { deny all; }";
    let all = routes("", server);
    assert_eq!(
        all[0]["route"][0]["match"].to_string(),
        r#"{ not = { value = { "{path.decoded}" = ['~ (?s-u)\.bak(?:\n?$)'] } } }"#
    );
}

#[test]
fn guards_belong_to_their_location() {
    let server = "auth_basic x; auth_basic_user_file /h; location /open/ { auth_basic off; return 200; } \
                  location /any/ { satisfy any; allow 10.0.0.0/8; deny all; } location /no/ { deny all; }";
    let all = routes("", server);
    assert_eq!(all[0]["basic_auth"].as_bool(), Some(false));
    assert_eq!(all[1]["satisfy"].as_str(), Some("any"));
    assert_eq!(all[1]["access"].to_string(), r#"{ allow = ["10.0.0.0/8"] }"#);
    assert_eq!(all[2]["deny"].as_bool(), Some(true));
}

#[test]
fn a_root_may_have_variables_behind_a_first_directory() {
    let site = |server: &str| {
        let (site, root, named) = converted("map $host $site { default all; b.example b; }", server);
        assert!(named.is_empty(), "{named:#?}");
        (site["root"].as_str().unwrap().to_owned(), root)
    };
    assert_eq!(site("set $base /srv; root $base/www;").0, "/srv/www");
    assert_eq!(site("root /srv/$host/$site;").0, "/srv/{host}/{map.site}");
    let (directory, root) =
        site("set $kind full; if ($http_user_agent ~* android) { set $kind small; } root /srv/$kind;");
    assert_eq!(directory, "/srv/{map.import-1}");
    let expected =
        "name = 'import-1'\nfrom = '{header.user-agent}'\ndefault = 'full'\nentries = { '~* android' = 'small' }";
    is(&root["map"][0], expected);
}

#[test]
fn fields_have_the_values_that_conditions_set() {
    let server = "set $skip 0; if ($query_string != \"\") { set $skip 1; } if ($cookie_in) { set $skip 1; } \
                  add_header X-Skip $skip always; location / { return 200; }";
    let (site, root, named) = converted("", server);
    assert!(named.is_empty(), "{named:#?}");
    let last = root["map"].as_array().unwrap().last().unwrap()["name"].as_str().unwrap().to_owned();
    assert_eq!(site["headers"]["set"]["X-Skip"].as_str(), Some(format!("{{map.{last}}}").as_str()));
}

#[test]
fn networks_and_groups_are_entries_of_maps() {
    let http = "geo $place { default far; 10.0.0.0/8 near; } map $uri $to { ~^/old/(?<id>\\d+)/(.*)$ /new/$id/$2; }";
    let (_, root, named) = converted(http, "location / { if ($to) { return 301 $to; } return 200 $place; }");
    assert!(named.is_empty(), "{named:#?}");
    let map = |name: &str| {
        root["map"].as_array().unwrap().iter().find(|map| map["name"].as_str() == Some(name)).unwrap().clone()
    };
    is(&map("place"), "name = 'place'\nfrom = '{client}'\ndefault = 'far'\nentries = { 'in 10.0.0.0/8' = 'near' }");
    let entries = "'~ ^/old/(?<id>\\d+)/(.*)$' = '/new/{id}/{2}'";
    is(&map("to"), &format!("name = 'to'\nfrom = '{{path.decoded}}'\nentries = {{ {entries} }}"));
}

#[test]
fn two_slashes_lead_to_the_server_of_everything_or_nowhere() {
    for (everything, leads) in [
        ("proxy_pass http://10.0.0.7;", true),
        ("deny all;", false),
        ("if ($http_x) { return 403; } proxy_pass http://10.0.0.7;", false),
        ("limit_except GET { deny all; } proxy_pass http://10.0.0.7;", false),
    ] {
        let server = format!("location /a/ {{ rewrite ^(.*)$ /$1 last; }} location / {{ {everything} }}");
        let (_, root, named) = converted("", &server);
        assert_eq!(named.is_empty(), leads, "{everything}: {named:?}");
        let text = root.to_string();
        assert_eq!(text.contains("/sealion-import-"), leads, "{text}");
    }
}

#[test]
fn look_around_is_an_expression_of_its_own() {
    let all =
        routes("", "location ~ /\\.(?!well-known/|ok$) { deny all; } location ~* (?<!\\.min)\\.png$ { expires 1h; }");
    is(
        &all[0],
        r"path = '~~ /\.(?!well-known/|ok(?:\n?$))'
        deny = true",
    );
    is(
        &all[1],
        r"path = '~~ (?i)(?<!\.min)\.png$'
        cache_control = 'max-age=3600'",
    );
}

#[test]
fn lifetimes_by_a_table_are_a_table_of_cache_control() {
    let http = "map $sent_http_content_type $lifetime { default off; text/css 1d; ~image/ max; }";
    let (site, root, named) = converted(http, "root /srv; expires $lifetime; location / { add_header X a; }");
    assert!(named.is_empty(), "{named:#?}");
    assert_eq!(site["cache_control"].as_str(), Some("{map.lifetime-changed}"));
    let entries = "'text/css' = 'max-age=86400', '~ image/' = 'max-age=315360000'";
    let expected =
        format!("name = 'lifetime-changed'\nfrom = '{{type}}'\nignore_case = true\nentries = {{ {entries} }}");
    is(&root["map"][0], &expected);
}

#[test]
fn a_format_of_the_log_is_its_text() {
    let http = r#"log_format own '$remote_addr "$request" {$status} $request_time $http_x_id $pipe';"#;
    let (site, _, named) = converted(http, "access_log /var/log/a own; location / { return 200; }");
    assert!(named.is_empty(), "{named:#?}");
    let text = r#"{address} "{method} {target} {protocol}" {{{status}}} {seconds} {header.x-id} -"#;
    assert_eq!(site["log"]["text"].as_str(), Some(text));
    assert_eq!(site["log"]["format"].as_str(), Some("combined"));
}

#[test]
fn an_application_of_uwsgi_gets_its_path_and_variables() {
    let http = "uwsgi_cache_path /var/cache/nginx keys_zone=app:10m; upstream app { server unix:/run/app.sock; server 10.0.0.2:3031; }";
    let (site, root, named) = converted(
        http,
        "location / { include uwsgi_params; uwsgi_pass app; uwsgi_read_timeout 300s; uwsgi_param APP_ENV live; client_max_body_size 20m;
           uwsgi_cache app; uwsgi_cache_valid 200 1m; uwsgi_hide_header X-A; }
         location /sub/ { uwsgi_pass 127.0.0.1:3031; uwsgi_param SCRIPT_NAME /sub; uwsgi_modifier1 30; }
         location /perl/ { uwsgi_pass uwsgi://127.0.0.1:3031; uwsgi_param SCRIPT_NAME /perl; uwsgi_modifier1 5; }",
    );
    let upstream = &root["upstream"][0];
    assert_eq!((upstream["protocol"].as_str(), upstream["answer_timeout"].as_str()), (Some("uwsgi"), Some("300s")));
    assert_eq!(
        upstream["servers"].to_string(),
        r#"[{ url = "unix:/run/app.sock" }, { url = "uwsgi://10.0.0.2:3031" }]"#
    );
    let proxies: Vec<_> = site["route"].as_array().unwrap().iter().map(|route| &route["proxy"]).collect();
    assert_eq!(proxies[0]["uwsgi"].to_string(), r#"{ params = { APP_ENV = "live" } }"#);
    assert_eq!(
        (proxies[0]["max_body"].as_str(), proxies[0]["cache"]["ttl"]["200"].as_str()),
        (Some("20MiB"), Some("60s"))
    );
    assert_eq!(proxies[0]["response_headers"][0]["name"].as_str(), Some("X-A"));
    assert_eq!((proxies[1]["strip_prefix"].as_bool(), proxies[1].get("uwsgi")), (Some(true), None));
    assert_eq!((proxies[2].get("strip_prefix"), proxies[2]["uwsgi"]["modifier1"].as_integer()), (None, Some(5)));
    assert!(named.len() == 1 && named[0].contains("strip_prefix"), "{named:#?}");
}

#[test]
fn what_has_no_counterpart_is_closed() {
    for (body, key, value) in [
        ("proxy_pass http://$arg_host;", "respond", Value::from(501)),
        ("uwsgi_pass suwsgi://127.0.0.1:1;", "respond", Value::from(501)),
        ("scgi_pass unix:/run/x;", "respond", Value::from(501)),
        ("auth_jwt x; return 200;", "deny", Value::from(true)),
        ("root /$host;", "respond", Value::from(501)),
    ] {
        let (site, root, named) = converted("", &format!("location / {{ {body} }}"));
        assert_eq!(site["route"][0].get(key), Some(&value), "{body}");
        assert!(named[0].contains("closed: "), "{named:?}");
        assert!(!root["import"]["summary"].as_array().unwrap().is_empty(), "{body}");
    }
}

#[test]
fn a_redirect_to_https_is_a_site_of_its_own() {
    let redirect = |name: &str| {
        format!("server {{ listen 80; server_name {name}; location / {{ return 301 https://$host$request_uri; }} }}")
    };
    let secure = "server { listen 443 ssl; server_name a.example; return 200; }";
    for (http, sites) in [
        (redirect("a.example"), 1),
        (redirect("a.example") + secure, 2),
        (redirect("b.example") + secure, 2),
        (redirect("b.example") + "server { listen 443 ssl; return 200; }", 2),
        // The name is taken at that address.
        (redirect("b.example") + &redirect("b.example"), 1),
    ] {
        let (root, _) = import(&http);
        assert_eq!(root["site"].as_array().map(Vec::len), Some(sites), "{http}");
    }
}

#[test]
fn errors_lead_to_named_routes_and_urls() {
    let server = "error_page 404 = @app; error_page 405 @app; error_page 403 =410 @app; error_page 500 http://b.example/x; \
                  location @app { return 200; }";
    let (site, ..) = converted("", server);
    assert_eq!(
        site["error_pages"].to_string(),
        r#"{ 404 = { to = "@app", status = "target" }, 405 = { to = "@app", status = "error" }, 403 = { to = "@app", status = 410 }, 500 = { to = "http://b.example/x", status = 302 } }"#
    );
}

#[test]
fn other_methods_have_a_route_with_guards_of_their_own() {
    let all = routes("", "location / { limit_except GET { allow 10.0.0.0/8; deny all; } proxy_pass http://10.0.0.1; }");
    is(&all[0]["route"][0], "match = { not = { method = ['GET'] } }\naccess = { allow = ['10.0.0.0/8'] }");
}

#[test]
fn a_named_location_keeps_the_limit_of_the_location_that_leads_there() {
    let server = "client_max_body_size 16; location /upload { client_max_body_size 1m; try_files /none @app; } \
                  location / { try_files /none @app; } location @app { proxy_pass http://10.0.0.1; }";
    let all = routes("", server);
    assert_eq!(all[0]["try"].to_string(), r#"["@app"]"#);
    assert_eq!(all[1]["try"].to_string(), r#"["@import-1"]"#);
    assert_eq!(all[2]["proxy"]["max_body"].as_str(), Some("1MiB"));
    assert_eq!((all[3]["name"].as_str(), all[3]["proxy"]["max_body"].as_str()), (Some("@import-1"), Some("16B")));
}

#[test]
fn files_that_are_asked_for_are_conditions() {
    let all = routes("", "root /srv; location / { if (-f $document_root/off.html) { return 503; } }");
    is(&all[0]["route"][0], "match = { exists = { file = '/off.html' } }\nrespond = 503");
}

#[test]
fn fields_without_always_are_not_set_on_errors() {
    let (site, ..) = converted("", "add_header X-A one; add_header X-B two always; return 200;");
    assert_eq!(site["headers"].to_string(), r#"{ set = { X-B = "two" }, set_without_errors = { X-A = "one" } }"#);
}

#[test]
fn cookies_choose_servers_and_servers_drain() {
    let upstream = |directives: &str| {
        let (root, named) = import(&format!(
            "upstream app {{ server 10.0.0.1; server 10.0.0.2 drain; {directives} }} server {{ listen 443 ssl; server_name a.example; \
             ssl_certificate c; ssl_certificate_key k; location / {{ proxy_pass http://app; }} }}"
        ));
        (root["upstream"][0].as_table().unwrap().clone(), named)
    };
    let (table, named) =
        upstream("sticky cookie srv_id expires=1h path=/shop/ domain=.example.com httponly secure samesite=Strict;");
    let expected = r#"cookie = "srv_id", max_age = "1h", path = "/shop/", same_site = "strict""#;
    let sticky = table["sticky"].to_string();
    assert!(expected.split(", ").all(|pair| sticky.contains(pair)), "{sticky}");
    assert_eq!(table["servers"][1]["state"].as_str(), Some("drain"));
    assert!(named.len() == 1 && named[0].contains("domain=.example.com has no counterpart"), "{named:#?}");
    for directives in ["sticky learn create=$a lookup=$b zone=c:1m;", "sticky route $cookie_a;", "sticky cookie $name;"]
    {
        let (table, named) = upstream(directives);
        assert!(table.get("sticky").is_none() && named.len() == 1, "{named:#?}");
    }
}

#[test]
fn a_mirror_is_a_key_of_the_rule_whose_requests_it_copies() {
    let upstreams = "upstream next { server 10.0.0.9; }";
    let server = "location / { mirror /mirror; proxy_pass http://10.0.0.7; proxy_set_header X-Site a; } \
                  location = /mirror { internal; proxy_pass http://next$request_uri; proxy_pass_request_body off; \
                  proxy_set_header Content-Length \"\"; proxy_set_header Host $host; proxy_set_header X-Shadow yes; }";
    let routes = routes(upstreams, server);
    let mirror = &routes[0]["proxy"]["mirror"];
    let expected = "to = 'next'\nhost = 'client'\ncontent = false\n\
                    request_headers = [{ name = 'X-Shadow', value = 'yes' }, { name = 'X-Site', value = '' }]";
    is(mirror, expected);
    let larger = "client_max_body_size 8m; location / { mirror /m; proxy_pass http://10.0.0.7; } \
                  location = /m { internal; proxy_pass http://next$request_uri; }";
    is(&self::routes(upstreams, larger)[0]["proxy"]["mirror"], "to = 'next'\nhost = 'next'\nmax_body = '8MiB'");
}

#[test]
fn a_mirror_without_a_counterpart_is_reported() {
    for (server, words) in [
        (
            "location / { mirror /m; proxy_pass http://10.0.0.7; } location = /m { internal; proxy_pass http://10.0.0.9; }",
            "copies have the path that the first server gets",
        ),
        (
            "location /a/ { mirror /m; proxy_pass http://10.0.0.7/; } location = /m { internal; proxy_pass http://10.0.0.9$request_uri; }",
            "copies have the path that the first server gets",
        ),
        ("location / { mirror /none; proxy_pass http://10.0.0.7; }", "no location has the path /none alone"),
        (
            "root /srv; location / { mirror /m; } location = /m { internal; proxy_pass http://10.0.0.9$request_uri; }",
            "requests that are forwarded over HTTP are copied",
        ),
        (
            "location / { mirror /m; mirror /n; proxy_pass http://10.0.0.7; } location = /m { internal; proxy_pass http://10.0.0.9$request_uri; } \
             location = /n { internal; proxy_pass http://10.0.0.8$request_uri; }",
            "a rule copies requests to one upstream",
        ),
    ] {
        let (_, _, named) = converted("", server);
        assert!(named.iter().any(|line| line.contains(words)), "{server}: {named:#?}");
    }
}

#[test]
fn a_server_that_is_asked_gets_the_host_and_fields_of_its_location() {
    let http = "upstream ws_app { server 127.0.0.1:9000; } proxy_set_header X-Everywhere 1;";
    let auth = |location: &str| {
        let server = format!("location = /oauth {{ internal; {location} }} location / {{ auth_request /oauth; }}");
        let (site, _, named) = converted(http, &server);
        let all = site["route"].as_array().unwrap().clone();
        (all.iter().find_map(|route| route.get("forward_auth")).cloned().unwrap(), named)
    };
    let of = |keys: &str| toml::Value::Table(format!("{keys}\nrefusal = 'status'").parse().unwrap());
    let fields = "proxy_set_header Host auth.test; proxy_set_header X-Api-Key k123; proxy_set_header Cookie \"\"; \
                  proxy_set_header Content-Length \"\"; proxy_set_header X-Original-URI $request_uri;";
    let (found, named) = auth(&format!("proxy_pass http://ws_app/check; {fields}"));
    assert!(named.is_empty(), "{named:#?}");
    let expected = "upstream = 'ws_app'\nto = '/check'\nhost = 'auth.test'\n\
                    request_headers = [{ name = 'X-Api-Key', value = 'k123' }, { name = 'Cookie', value = '' }]";
    assert_eq!(found, of(expected));
    let (found, named) = auth("proxy_pass http://127.0.0.1:9000/check; proxy_pass_request_headers off;");
    assert!(named.is_empty(), "{named:#?}");
    let everywhere = "request_headers = [{ name = 'X-Everywhere', value = '1' }]";
    assert_eq!(found, of(&format!("to = 'http://127.0.0.1:9000/check'\npass_fields = false\n{everywhere}")));
    for (host, key) in [("$host", "{host}"), ("$http_host", "client")] {
        let (found, _) = auth(&format!("proxy_pass http://ws_app; proxy_set_header Host {host};"));
        assert_eq!(found["host"].as_str(), Some(key));
    }
    let (found, named) = auth("proxy_pass http://ws_app; proxy_set_header X-Client $ssl_client_raw_cert;");
    assert_eq!(found["request_headers"][0]["value"].as_str(), Some(""), "no client sets it");
    assert!(matches!(&*named, [one] if one.contains("asked without X-Client")), "{named:#?}");
}

#[test]
fn a_server_that_is_asked_over_tls_is_verified_as_its_location_says_and_has_no_route() {
    let server = "location = /oauth { internal; proxy_pass https://10.0.0.7/check; proxy_ssl_verify on; \
                  proxy_ssl_trusted_certificate /etc/ca.pem; proxy_ssl_name auth.test; proxy_read_timeout 7s; } \
                  location / { auth_request /oauth; }";
    let (site, root, named) = converted("", server);
    assert!(named.is_empty(), "{named:#?}");
    is(&site["route"][0], "path = '= /oauth'\nrespond = 404");
    assert_eq!(site["route"].as_array().unwrap().len(), 2);
    is(&site["route"][1]["forward_auth"], "upstream = '10.0.0.7'\nto = '/check'\nrefusal = 'status'");
    is(
        &root["upstream"][0],
        "name = '10.0.0.7'\nservers = [{ url = 'https://10.0.0.7' }]\nanswer_timeout = '7s'\nstall_timeout = '7s'\ntunnel_timeout = '7s'\n\
         tls = { roots = '/etc/ca.pem', server_name = 'auth.test' }",
    );
    // Clients reach a location that is not internal, and so do requests that another directive leads there.
    for others in [
        "location = /oauth { proxy_pass http://10.0.0.7; }",
        "error_page 401 /oauth; location = /oauth { internal; proxy_pass http://10.0.0.7; }",
    ] {
        let (site, ..) = converted("", &format!("{others} location / {{ auth_request /oauth; }}"));
        let own =
            site["route"].as_array().unwrap().iter().find(|route| route["path"].as_str() == Some("= /oauth")).unwrap();
        assert!(own.get("proxy").is_some(), "{own}");
    }
}

#[test]
fn rates_by_the_minute_and_bursts_admit_as_many_requests_as_nginx() {
    let zone = |rate: &str| format!("limit_req_zone $binary_remote_addr zone=a:1m rate={rate};");
    for (rate, burst, expected) in [
        ("5r/m", " burst=2 nodelay", "{ zone = \"a\", requests_per_minute = 5, burst = 3 }"),
        ("120r/m", "", "{ zone = \"a\", requests_per_second = 2, burst = 1 }"),
        ("90r/m", "", "{ zone = \"a\", requests_per_minute = 90, burst = 1 }"),
        ("10r/s", " burst=20", "{ zone = \"a\", requests_per_second = 10, burst = 21 }"),
    ] {
        let (site, _, named) =
            converted(&zone(rate), &format!("limit_req zone=a{burst}; location / {{ return 200; }}"));
        assert!(named.is_empty(), "{named:#?}");
        assert_eq!(site["limits"].to_string(), expected, "{rate}{burst}");
    }
}

#[test]
fn an_error_page_lies_beneath_the_root_of_its_location() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().display();
    std::fs::write(directory.path().join("50x.html"), "page").unwrap();
    let server = format!(
        "root /srv; error_page 502 504 /50x.html; location / {{ proxy_pass http://127.0.0.1:9000; }} \
         location = /50x.html {{ root {root}; }}"
    );
    let (site, _, named) = converted("", &server);
    assert!(named.is_empty(), "{named:#?}");
    assert_eq!(site["error_pages"].to_string(), "{ 502 = \"/50x.html?\", 504 = \"/50x.html?\" }");
    is(&site["route"][1], &format!("path = '= /50x.html'\nroot = '{root}'"));
}

#[test]
fn a_location_with_fields_of_its_own_has_no_hsts_of_the_server() {
    let server = "add_header Strict-Transport-Security max-age=31536000; \
                  location /own/ { add_header X-Own 1; return 200; } location / { return 200; }";
    let all = routes("", server);
    assert_eq!(all[0]["hsts"].to_string(), "{}");
    assert_eq!(all[1].get("hsts"), None);
}

#[test]
fn a_rate_that_a_condition_sets_is_named() {
    let (_, _, named) =
        converted("", "location / { if ($http_user_agent ~ bot) { set $limit_rate 50k; } return 200; }");
    assert!(matches!(&*named, [one] if one.contains("limits.bandwidth")), "{named:#?}");
}

#[test]
fn a_text_has_the_type_that_is_compiled_into_nginx() {
    let all = routes("", "location = /gone { return 410 gone; } location /a { return 410 gone; }");
    assert_eq!(all[0]["respond"]["type"].as_str(), Some("text/plain"));
    assert_eq!(all[1]["media_types"]["*"].as_str(), Some("text/plain"));
    let all = routes("default_type application/json;", "location = /gone { return 410 gone; }");
    assert_eq!(all[0]["respond"]["type"].as_str(), Some("application/json"));
}

#[test]
fn a_location_that_returns_has_none_of_the_guards_around_it() {
    let around =
        "deny all; limit_req zone=a; auth_request /ask; location = /ask { internal; proxy_pass http://10.0.0.7; }";
    let zone = "limit_req_zone $binary_remote_addr zone=a:1m rate=1r/s;";
    let of = |location: &str| {
        let (site, ..) = converted(zone, &format!("{around} location /a/ {{ {location} }}"));
        let mut all = site["route"].as_array().unwrap().iter();
        all.find(|route| route["path"].as_str() == Some("/a/*")).cloned().unwrap()
    };
    is(&of("return 204;"), "path = '/a/*'\naccess = {}\nforward_auth = false\nlimits = {}\nrespond = 204");
    // nginx asks the guards of these.
    assert_eq!(of("if ($arg_x) { break; } return 204;").get("access"), None);
    let nested = of("deny all; return 204; location /a/b/ { root /srv; }");
    assert!(nested.get("access").is_some_and(|access| access.get("deny").is_some()), "{nested}");
    assert_eq!(nested["route"][0].get("access"), None, "{nested}");
}

#[test]
fn a_path_before_variables_is_kept_for_the_server() {
    for (to, expected) in [
        ("http://10.0.0.7/app$uri$is_args$args", "/sealion-import-1/app{path}"),
        ("http://10.0.0.7/app$request_uri", "/sealion-import-1/app{path}"),
        ("http://10.0.0.7/app/?to=$uri", "/sealion-import-1/app/?to={path}"),
        ("http://10.0.0.7$uri", "/sealion-import-1{path}?"),
        ("http://10.0.0.7/$arg_a", "/sealion-import-1/{raw_query.a}?"),
    ] {
        let all = routes("", &format!("location / {{ proxy_pass {to}; }}"));
        assert_eq!(all[0]["rewrite"].as_str(), Some(expected), "{to}");
    }
    let all = routes("", "location / { proxy_pass http://10.0.0.7$request_uri; }");
    assert!(all[0].get("proxy").is_some());
}

#[test]
fn a_query_that_is_set_goes_to_the_server_and_into_redirects() {
    let all = routes("", "location / { set $args \"$args&from=proxy\"; proxy_pass http://10.0.0.7; }");
    assert_eq!(all[0]["rewrite"].as_str(), Some("/sealion-import-1{path}?{query}&from=proxy"));
    let all = routes("", "location / { set $args ''; rewrite ^ /new permanent; }");
    assert_eq!(all[0]["route"][0]["redirect"].to_string(), "{ to = \"/new\", status = 301, query = \"drop\" }");
}

#[test]
fn tables_by_ranges_hosts_types_and_other_tables() {
    let http = "geo $zone { ranges; default far; 10.0.0.0-10.0.1.127 near; } \
                map $host $kind { hostnames; .a.test first; } \
                map $sent_http_content_type $age { application/javascript 1d; ~javascript 2d; } \
                upstream one { server 10.0.0.1; } upstream two { server 10.0.0.2; } \
                map $cookie_pool $by_cookie { default one; two two; } map $arg_pool $pool { default $by_cookie; two two; }";
    let server =
        "add_header X-Zone $zone; add_header X-Kind $kind; expires $age; location / { proxy_pass http://$pool; }";
    let (_, root, named) = converted(http, server);
    assert!(named.is_empty(), "{named:#?}");
    let map = |name: &str| {
        let all = root["map"].as_array().unwrap();
        all.iter().find(|map| map["name"].as_str() == Some(name)).unwrap()["entries"].to_string()
    };
    assert_eq!(map("zone"), "{ \"in 10.0.0.0/24\" = \"near\", \"in 10.0.1.0/25\" = \"near\" }");
    assert_eq!(map("kind"), r#"{ '~* ^(?:.*\.)?a\.test\.?$' = "first" }"#);
    assert!(map("age-changed").contains("\"text/javascript\" = \"max-age=86400\""), "{}", map("age-changed"));
    assert_eq!(map("pool"), "{ two = \"two\" }");
}

#[test]
fn types_of_a_location_replace_all_types_around_it() {
    let http = "types { text/html html; } default_type text/plain;";
    let all = routes(
        http,
        "location /a/ { types { } default_type application/octet-stream; } location /b/ { types { text/x-own own; } }",
    );
    assert_eq!(all[0]["media_types"]["*.*"].as_str(), Some("application/octet-stream"));
    assert_eq!(all[1]["media_types"]["*.*"].as_str(), Some("text/plain"));
    assert_eq!(all[1]["media_types"]["own"].as_str(), Some("text/x-own"));
}

#[test]
fn a_folder_without_its_slash_belongs_to_the_location_around() {
    let all = routes(
        "",
        "location / { deny all; location /api/ { allow all; return 200; } location ^~ /b/ { return 201; } }",
    );
    assert_eq!(all[0]["route"][0]["path"].as_str(), Some("/api/*"));
    assert_eq!(all[0]["route"][1]["path"].as_str(), Some("^~ /b/*"));
}

#[test]
fn the_name_of_a_forwarded_folder_is_redirected_without_its_guards() {
    let all = routes("", "location ^~ /api/ { deny all; proxy_pass http://10.0.0.7; }");
    is(
        &all[0],
        "path = '^~ /api/'\ndeny = true\n[[route]]\npath = '= /api'\naccess = {}\ndeny = false\nredirect = { to = '/api/', status = 301 }",
    );
    let all = routes("", "location '/a b/' { proxy_pass http://10.0.0.7; }");
    assert_eq!(all[0]["route"][0]["redirect"]["to"].as_str(), Some("{path}/"));
}

#[test]
fn a_star_of_nginx_is_no_star_of_a_route() {
    let (site, _, named) = converted("", "location /a/* { return 200; } location = /b/* { return 200; }");
    assert!(matches!(&*named, [one] if one.contains("closed: ") && one.contains("stands for itself")), "{named:?}");
    is(&site["route"][0], "path = '~ ^/a/\\*'\nrespond = 501");
    assert_eq!(site["route"][1]["path"].as_str(), Some("= /b/*"));
}

#[test]
fn a_root_by_a_table_of_directories_is_beneath_the_one_that_all_have() {
    let http = "map $host $base { default /srv/www/all; b.example /srv/www/b/public; }";
    let (site, root, named) = converted(http, "root $base;");
    assert!(named.is_empty(), "{named:#?}");
    assert_eq!(site["root"].as_str(), Some("/srv/www/{map.base-changed}"));
    let map = root["map"].as_array().unwrap().iter().find(|map| map["name"].as_str() == Some("base-changed")).unwrap();
    assert_eq!(map["default"].as_str(), Some("all"));
    assert_eq!(map["entries"].to_string(), "{ \"b.example\" = \"b/public\" }");
}

#[test]
fn a_rewrite_without_a_flag_is_followed_by_the_rest_of_its_block() {
    let first = |rewrites: &str| {
        let (site, _, named) = converted("", &format!("root /srv; location /x/ {{ {rewrites} }}"));
        (site["route"][0]["route"][0].clone(), named)
    };
    let (route, named) = first("rewrite ^/x/(.*)$ /y/$1; rewrite ^/y/(.*)$ /z/$1; rewrite ^/a/ /b;");
    assert!(named.is_empty(), "{named:#?}");
    assert_eq!(route["rewrite"].as_str(), Some("/y/{1}"));
    let within = route["route"].as_array().unwrap();
    assert_eq!(within.len(), 1);
    assert_eq!(within[0]["rewrite"].as_str(), Some("/z/{led1_1}"));
    assert_eq!(within[0]["match"]["value"]["/y/{1}"].as_str(), Some("~ ^/y/(?<led1_1>.*)$"));
    let (route, _) = first("rewrite ^/x/(.*)$ /y/$1; return 403;");
    assert_eq!((route.get("rewrite"), route["respond"].as_integer()), (None, Some(403)));
    for closed in [
        "rewrite ^/x/(.*)$ /y/$1; if ($unknown) { return 403; }",
        "rewrite ^/x/(.*)$ /y/$1?a=1; if ($arg_a) { return 403; }",
        "rewrite a b$1; rewrite a b$1; rewrite a b$1; rewrite a b$1; rewrite a b$1;",
        "rewrite ^/x/(.*)$ /y/$1; rewrite [a&&b] /z;",
    ] {
        let (route, named) = first(closed);
        assert_eq!(route["respond"].as_integer(), Some(501), "{closed}");
        assert!(named.iter().any(|line| line.contains("its paths answer 501")), "{closed}: {named:#?}");
    }
}

#[test]
fn a_rewrite_whose_paths_another_one_has_is_left_out() {
    for server in [
        "rewrite ^/a /x break; rewrite ^/a /y last; rewrite ^/b /z last;",
        "set $on 1; if ($on) { return 204; } if ($on = 1) { return 403; }",
    ] {
        let (site, ..) = converted("", &format!("root /srv; location /a/ {{ {server} }}"));
        let routes = site["route"][0]["route"].as_array().unwrap();
        let paths: Vec<_> = routes.iter().map(|route| route["path"].as_str().unwrap()).collect();
        let distinct: std::collections::HashSet<_> = paths.iter().collect();
        assert_eq!(paths.len(), distinct.len(), "{server}: {paths:?}");
    }
}

#[test]
fn a_variable_that_a_location_sets_for_another_is_named() {
    let other = "if ($v) { return 403; } proxy_pass http://10.0.0.1;";
    for (own, other, is_named) in [
        ("try_files /a @n;", format!("location @n {{ {other} }}"), true),
        ("rewrite ^ /n/ last;", format!("location /n/ {{ {other} }}"), true),
        ("rewrite ^ /n/ last;", format!("location /n/ {{ set $v 2; {other} }}"), false),
        ("rewrite ^ /n/ break;", format!("location /n/ {{ {other} }}"), false),
        ("return 200;", format!("location /n/ {{ {other} }}"), false),
    ] {
        let server = format!("root /srv; set $v ''; location /a/ {{ set $v 1; {own} }} {other}");
        let (.., named) = converted("", &server);
        assert_eq!(marked(&named).len(), usize::from(is_named), "{server}: {named:#?}");
    }
}

#[test]
fn the_numbers_of_nginx_lead_to_the_metrics() {
    let (_, _, named) =
        converted("", "location / { proxy_pass http://127.0.0.1:1; } location /status { stub_status; }");
    assert!(matches!(&*named, [one] if one.contains("[metrics]")), "{named:#?}");
}

#[test]
fn lost_guards_are_counted_in_the_summary() {
    let lost = r"location ~ ^/\144ocs/ { deny all; }";
    for (server, expected) in [
        (
            format!("{lost} location ~ [a&&b] {{ deny all; }}"),
            "in part: a.example, 2 guards are lost: write by hand what ",
        ),
        (lost.to_owned(), "in part: a.example, 1 guard is lost: write by hand what "),
    ] {
        let (_, root, named) = converted("", &server);
        let line = root["import"]["summary"][0].as_str().unwrap();
        assert!(line.starts_with(expected), "{line}: {named:?}");
    }
    let (_, root, _) = converted("disable_symlinks on;", "location / { return 200; }");
    let lines = root["import"]["summary"].as_array().unwrap();
    assert!(
        lines.iter().any(|line| line.as_str().unwrap().starts_with("in part: all sites, 1 guard is lost: ")),
        "{lines:?}"
    );
}

#[test]
fn what_a_location_does_stays_out_of_the_locations_within() {
    let server =
        "location /a { proxy_pass http://10.0.0.7/z; location /a/b/ { deny all; } location ~ c$ { deny all; } }";
    let all = routes("", server);
    let rewrite = &all[0]["route"][0];
    assert_eq!(rewrite["path"].as_str(), Some("~ ^/a(.*)$"));
    let except = &rewrite["match"]["not"]["value"]["{path.decoded}"];
    assert_eq!(*except, Value::from(vec![r"~ (?s-u)c(?:\n?$)", "~ ^/a/b/"]));
    let all = routes("", "location ~ ^/a { if ($arg_x) { return 204; } location '/a b/' { deny all; } return 200; }");
    let condition = all[0]["route"][0]["match"].to_string();
    assert!(condition.contains("~ ^/a b/"), "{condition}");
}
