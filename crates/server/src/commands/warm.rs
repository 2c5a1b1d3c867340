//! `sealion warm`: requests URLs from a server like a client, so that its cache has them before clients request them.
//!
//! ```text
//! URLs, --list, --sitemap ─► Client::ask, one after another by --rate ─► Cache-Status ─► stored, there already, or the reason why not
//! ```

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::io::{Read, stdin};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use flate2::read::GzDecoder;
use http::header::{ACCEPT_ENCODING, HOST};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use sealion_http::Status;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use super::print;
use crate::response::{Piece, Source};
use crate::upstream::{Forwarded, ServerConfig, ServerUrl, Upstream, UpstreamConfig, Upstreams, forward};
use crate::values::{At, Bounded, Problems, printable};

/// Arguments of `sealion warm`.
#[derive(Debug, Clone, Args)]
pub(super) struct WarmArgs {
    /// URLs to request
    #[arg(value_name = "URL", required_unless_present_any = ["list", "sitemap"])]
    pub urls: Vec<String>,

    /// File with one URL per line, `-` for standard input; empty lines and lines that begin with # are skipped; may be
    /// repeated
    #[arg(long, value_name = "FILE")]
    pub list: Vec<PathBuf>,

    /// URL of a sitemap, or of an index of sitemaps, whose URLs are requested; may be repeated
    #[arg(long, value_name = "URL")]
    pub sitemap: Vec<String>,

    /// Requests per second
    #[arg(long, value_name = "N", default_value = "10", value_parser = rate)]
    pub rate: f64,

    /// Maximum number of concurrent requests; the rate falls if responses take longer
    #[arg(long, value_name = "N", default_value_t = const { Bounded::new(8).unwrap() })]
    pub at_once: Bounded<1, 1000>,

    /// Server to connect to instead of the URLs' hosts, for instance 127.0.0.1:443; its certificate is still checked
    /// for the URLs' hosts
    #[arg(long, value_name = "HOST:PORT")]
    pub connect: Option<String>,

    /// Certificates of the authorities that signed the server's certificate, PEM [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub roots: Option<PathBuf>,

    /// Field of the requests, for instance "Accept-Language: de"; may be repeated [default: Accept-Encoding as browsers
    /// send it]
    #[arg(long = "header", value_name = "FIELD")]
    pub headers: Vec<String>,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.001..=100_000.0).contains(rate));
    rate.ok_or_else(|| "write a number of requests a second, for instance 10 or 0.5".to_owned())
}

/// Requests all URLs. The exit code is 1 if afterwards one of them is not in the cache.
///
/// # Errors
/// An argument is invalid, or a list cannot be read. Later failures are reported for each URL.
pub(super) fn run(args: &WarmArgs) -> Result<ExitCode, String> {
    let mut urls = args.urls.clone();
    for list in &args.list {
        let text = read_list(list).map_err(|error| format!("cannot read {}: {error}", list.display()))?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        urls.extend(lines.map(str::to_owned));
    }
    let mut client = Client::new(args)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| format!("cannot start: {e}"))?;
    let counts = runtime.block_on(async {
        let mut counts = Counts::default();
        client.read_sitemaps(&args.sitemap, &mut urls, &mut counts).await;
        client.ask_for_all(&urls, args, &mut counts).await;
        counts
    });
    let Counts { stored, there, failed } = counts;
    print(&format!("{stored} stored, {there} there already, {failed} failed\n"))?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read_list(list: &Path) -> std::io::Result<String> {
    if list == Path::new("-") {
        let mut text = String::new();
        return stdin().read_to_string(&mut text).map(|_| text);
    }
    std::fs::read_to_string(list)
}

#[derive(Debug, Default)]
struct Counts {
    stored: u64,
    there: u64,
    failed: u64,
}

impl Counts {
    fn add(&mut self, url: &str, outcome: Result<Warmed, String>) {
        match outcome {
            Ok(Warmed::Stored) => self.stored += 1,
            Ok(Warmed::WasThere) => self.there += 1,
            Err(why) => {
                self.failed += 1;
                eprintln!("sealion: {}: {}", printable(url), printable(&why));
            }
        }
    }

    fn add_joined(&mut self, joined: Result<(String, Result<Warmed, String>), JoinError>) {
        match joined {
            Ok((url, outcome)) => self.add(&url, outcome),
            Err(error) => self.add("a request", Err(error.to_string())),
        }
    }
}

/// A response that is in the cache.
#[derive(Debug, PartialEq, Eq)]
enum Warmed {
    Stored,
    WasThere,
}

/// Sends requests to servers over persistent connections.
struct Client {
    connect: Option<String>,
    roots: Option<PathBuf>,
    fields: HeaderMap,
    /// Servers by scheme and authority.
    servers: HashMap<String, Arc<Upstream>>,
}

impl Client {
    fn new(args: &WarmArgs) -> Result<Self, String> {
        let mut fields = HeaderMap::new();
        for line in &args.headers {
            let field = line.split_once(':').and_then(|(name, value)| {
                let name = HeaderName::try_from(name).ok().filter(|name| *name != HOST)?;
                Some((name, HeaderValue::try_from(value.trim()).ok()?))
            });
            let Some((name, value)) = field else {
                return Err(format!(
                    "--header {line:?} cannot be sent: write for instance \"Accept-Language: de\", and hosts in the URLs"
                ));
            };
            fields.append(name, value);
        }
        if !fields.contains_key(ACCEPT_ENCODING) {
            fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("br, gzip, zstd"));
        }
        Ok(Client { connect: args.connect.clone(), roots: args.roots.clone(), fields, servers: HashMap::new() })
    }

    async fn ask_for_all(&mut self, urls: &[String], args: &WarmArgs, counts: &mut Counts) {
        let mut ticks = interval(Duration::from_secs_f64(args.rate.recip()));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut under_way = JoinSet::new();
        for url in urls {
            let (server, request) = match self.request(url) {
                Ok(both) => both,
                Err(why) => {
                    counts.add(url, Err(why));
                    continue;
                }
            };
            ticks.tick().await;
            if under_way.len() >= args.at_once.usize()
                && let Some(joined) = under_way.join_next().await
            {
                counts.add_joined(joined);
            }
            let url = url.clone();
            under_way.spawn(async move {
                let answered = ask(&server, request, |_| Ok(())).await;
                (url, answered.and_then(|(status, fields)| warmed(status, &fields)))
            });
        }
        while let Some(joined) = under_way.join_next().await {
            counts.add_joined(joined);
        }
    }

    /// Adds the URLs of sitemaps, and of the sitemaps that they name in turn.
    async fn read_sitemaps(&mut self, first: &[String], urls: &mut Vec<String>, counts: &mut Counts) {
        let mut left: Vec<String> = first.iter().rev().cloned().collect();
        let mut seen = HashSet::new();
        while let Some(url) = left.pop() {
            if !seen.insert(url.clone()) {
                continue;
            }
            match self.read_sitemap(&url).await {
                Ok(sitemap) => {
                    left.extend(sitemap.sitemaps.into_iter().rev());
                    urls.extend(sitemap.urls);
                }
                Err(why) => counts.add(&url, Err(why)),
            }
        }
    }

    async fn read_sitemap(&mut self, url: &str) -> Result<Sitemap, String> {
        let (server, mut request) = self.request(url)?;
        request.fields.map_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let mut content = Vec::new();
        let (status, _) = ask(&server, request, |piece| {
            content.extend_from_slice(piece);
            if content.len() as u64 > LARGEST_SITEMAP { Err(too_large()) } else { Ok(()) }
        })
        .await?;
        if status != Status::OK {
            return Err(format!("the sitemap's status is {}", status.code()));
        }
        if content.starts_with(GZIP) {
            let mut text = Vec::new();
            let read = GzDecoder::new(&content[..]).take(LARGEST_SITEMAP + 1).read_to_end(&mut text);
            read.map_err(|error| format!("the sitemap cannot be decompressed: {error}"))?;
            if text.len() as u64 > LARGEST_SITEMAP {
                return Err(too_large());
            }
            content = text;
        }
        Sitemap::parse(&content)
    }

    /// The request for a URL, and the server to send it to.
    fn request(&mut self, url: &str) -> Result<(Arc<Upstream>, Forwarded), String> {
        let without_fragment = url.split('#').next().unwrap_or_default();
        let uri: Uri = without_fragment.parse().map_err(|error| format!("it is not a URL: {error}"))?;
        let (Some(scheme @ ("https" | "http")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err("it is not a whole URL: write for instance https://example.org/news".to_owned());
        };
        if authority.as_str().contains('@') {
            return Err("it has a user: write --header \"Authorization: …\" instead".to_owned());
        }
        let host = HeaderValue::try_from(authority.as_str()).map_err(|error| error.to_string())?;
        let server = self.server(scheme, authority.as_str(), authority.host())?;
        let target = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Ok((server, Forwarded::get(target.into(), self.fields.clone().into(), Some(host))))
    }

    fn server(&mut self, scheme: &str, authority: &str, host: &str) -> Result<Arc<Upstream>, String> {
        let own = format!("{scheme}://{authority}");
        if let Some(known) = self.servers.get(&own) {
            return Ok(Arc::clone(known));
        }
        let url = match &self.connect {
            Some(address) => format!("{scheme}://{address}"),
            None => own.clone(),
        };
        let url: ServerUrl = url.parse()?;
        let mut config = UpstreamConfig::of("server", vec![ServerConfig::of(At::from(url))]);
        config.tls.roots = self.roots.clone().map(At::from);
        config.tls.server_name = Some(At::from(host.trim_matches(['[', ']']).to_owned()));
        let mut problems = Problems::of_arguments();
        let built = Upstreams::build(&[config], Vec::new(), &mut problems).into_all().pop();
        let Some(server) = built.filter(|_| problems.is_empty()) else { return Err(problems.to_string()) };
        self.servers.insert(own, Arc::clone(&server));
        Ok(server)
    }
}

/// Sends a request, reads the whole response, and passes each piece to `take`.
async fn ask(
    server: &Arc<Upstream>,
    mut request: Forwarded,
    mut take: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<(Status, HeaderMap), String> {
    let (_, result) = forward(server, &mut request).await;
    let reply = result.map_err(|failure| with_remedy(failure.to_string()))?;
    let mut body: Pin<Box<dyn Source>> = reply.body.into();
    while let Some(piece) = poll_fn(|cx| body.as_mut().poll_piece(cx)).await {
        if let Piece::Bytes(piece) = piece.map_err(|error| error.to_string())? {
            take(&piece)?;
        }
    }
    Ok((reply.status, reply.fields.into_map()))
}

/// A failure, with the option that mends it.
fn with_remedy(failure: String) -> String {
    match failure.contains("UnknownIssuer") {
        true => format!("{failure}: name the roots of its certificate with --roots"),
        false => failure,
    }
}

/// The outcome in the last member of Cache-Status, which the requested server added.
///
/// # Errors
/// The reason why the cache does not have the response.
fn warmed(status: Status, fields: &HeaderMap) -> Result<Warmed, String> {
    if status.code() >= 400 {
        return Err(format!("its status is {}", status.code()));
    }
    let lines = fields.get_all("cache-status").iter().filter_map(|line| line.to_str().ok());
    let Some(member) = lines.flat_map(|line| line.split(',')).next_back() else {
        return Err("the response has no Cache-Status: its rule has no cache, or status_header = false".to_owned());
    };
    let parameters = || member.split(';').skip(1).map(str::trim);
    match parameters().find_map(|parameter| parameter.strip_prefix("detail=")) {
        _ if parameters().any(|parameter| parameter == "hit") => Ok(Warmed::WasThere),
        _ if parameters().any(|parameter| parameter == "stored") => Ok(Warmed::Stored),
        Some(why) => Err(format!("it is not stored: {why}")),
        None => Err("it is not stored".to_owned()),
    }
}

/// The contents of a sitemap (<https://www.sitemaps.org/protocol.html>).
#[derive(Debug, Default, PartialEq, Eq)]
struct Sitemap {
    urls: Vec<String>,
    /// Further sitemaps, if it is an index.
    sitemaps: Vec<String>,
}

impl Sitemap {
    fn parse(content: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(content).map_err(|_| "the sitemap is not UTF-8".to_owned())?;
        let text = text.trim_start_matches('\u{feff}');
        let document =
            roxmltree::Document::parse(text).map_err(|error| format!("the sitemap cannot be read: {error}"))?;
        let root = document.root_element();
        let mut sitemap = Sitemap::default();
        let (entry, list) = match root.tag_name().name() {
            "urlset" => ("url", &mut sitemap.urls),
            "sitemapindex" => ("sitemap", &mut sitemap.sitemaps),
            other => {
                return Err(format!("it is not a sitemap: it begins with <{other}>, not <urlset> or <sitemapindex>"));
            }
        };
        let entries = root.children().filter(|node| node.has_tag_name_of(entry));
        let places = entries.filter_map(|entry| entry.children().find(|node| node.has_tag_name_of("loc"))?.text());
        list.extend(places.map(|place| place.trim().to_owned()));
        Ok(sitemap)
    }
}

/// Names of elements in any namespace: many sitemaps have a wrong namespace.
trait LocalName {
    fn has_tag_name_of(&self, name: &str) -> bool;
}

impl LocalName for roxmltree::Node<'_, '_> {
    fn has_tag_name_of(&self, name: &str) -> bool {
        self.is_element() && self.tag_name().name() == name
    }
}

fn too_large() -> String {
    format!("the sitemap has more than {} MiB, the most that the protocol allows", LARGEST_SITEMAP >> 20)
}

/// The protocol's limit.
const LARGEST_SITEMAP: u64 = 50 << 20;

/// The first bytes of a compressed sitemap.
const GZIP: &[u8] = b"\x1f\x8b";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sitemap_names_urls_or_sitemaps() {
        let urls = br#"<?xml version="1.0"?>
            <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
              <url><loc> https://example.org/a?b&amp;c </loc><image:image><image:loc>https://example.org/i.png</image:loc></image:image></url>
              <url><lastmod>2026-01-01</lastmod><loc>https://example.org/b</loc></url>
            </urlset>"#;
        let expected = ["https://example.org/a?b&c", "https://example.org/b"].map(str::to_owned).to_vec();
        assert_eq!(Sitemap::parse(urls), Ok(Sitemap { urls: expected, sitemaps: Vec::new() }));
        let index = b"\xef\xbb\xbf<sitemapindex><sitemap><loc>https://example.org/1.xml</loc></sitemap></sitemapindex>";
        let expected = vec!["https://example.org/1.xml".to_owned()];
        assert_eq!(Sitemap::parse(index), Ok(Sitemap { urls: Vec::new(), sitemaps: expected }));
        for (wrong, word) in [
            (&b"<html></html>"[..], "<html>"),
            (b"<urlset>", "cannot be read"),
            (b"\xff", "UTF-8"),
            (b"<!DOCTYPE urlset [<!ENTITY a \"b\">]><urlset><url><loc>&a;</loc></url></urlset>", "cannot be read"),
        ] {
            assert!(Sitemap::parse(wrong).unwrap_err().contains(word), "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn the_last_member_of_cache_status_says_what_became_of_a_response() {
        let outcome = |status, lines: &[&'static str]| {
            let lines =
                lines.iter().map(|line| (HeaderName::from_static("cache-status"), HeaderValue::from_static(line)));
            warmed(Status::new(status).unwrap(), &lines.collect())
        };
        assert_eq!(outcome(200, &["sealion; hit; ttl=5"]), Ok(Warmed::WasThere));
        assert_eq!(outcome(200, &["sealion; fwd=stale; fwd-status=304; stored"]), Ok(Warmed::Stored));
        assert_eq!(outcome(301, &["origin; hit", "sealion; fwd=uri-miss; stored; collapsed"]), Ok(Warmed::Stored));
        assert_eq!(outcome(200, &["origin; hit, sealion; fwd=uri-miss; stored"]), Ok(Warmed::Stored));
        for (status, lines, expected) in [
            (200, &["sealion; fwd=uri-miss; detail=private"][..], "not stored: private"),
            (200, &["origin; hit", "sealion; fwd=bypass"], "not stored"),
            (200, &[], "status_header"),
            (404, &["sealion; fwd=uri-miss; stored"], "404"),
        ] {
            let why = outcome(status, lines).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }

    #[test]
    fn a_rate_is_a_number_of_requests_a_second() {
        assert_eq!((rate("0.5"), rate("100")), (Ok(0.5), Ok(100.0)));
        for wrong in ["0", "-1", "NaN", "inf", "ten", "1000000"] {
            assert!(rate(wrong).unwrap_err().contains("for instance"), "{wrong}");
        }
    }
}
