#!/bin/sh
# wrk by hand, in a guest that counts instructions: three warm requests by curl, no log, files on tmpfs or in the initramfs.
#   cargo xtask guest --icount --kernel 6.1,7.2 --include … --exec 'sh bench/clients/by-hand.sh SEALION DIRECTORY'
# DIRECTORY has cert.pem and key.pem. Included are both, this file, wrk, curl and /usr/sbin/ip. METRICS (tcp_no_metrics_save), DIRS,
# SUITES (one: TLS_AES_128_GCM_SHA256 alone; any: wrk's choice) and ROUNDS choose a part. Lines RESULT are the rows of by-hand.csv.
set -eu
sealion=$1 here=$2
mkdir -p /var/run /mem /disk /tmp/home /tmp/w
export HOME=/tmp/home
ip link set lo up
mount -t tmpfs none /mem
for d in /mem /disk; do
    head -c 65536 /dev/urandom > $d/64k
    head -c 1048576 /dev/urandom > $d/1m
done
cat > /tmp/ssl.cnf <<C
openssl_conf = a
[a]
ssl_conf = b
[b]
system_default = c
[c]
Ciphersuites = TLS_AES_128_GCM_SHA256
MinProtocol = TLSv1.3
C
conf() {
    cat > /tmp/w/nginx.conf <<C
daemon off;
user root;
worker_processes 1;
worker_rlimit_nofile 16384;
pid /tmp/w/nginx.pid;
error_log stderr error;
events { worker_connections 8192; }
http {
  client_body_temp_path /tmp/w/body;
  proxy_temp_path /tmp/w/proxy;
  fastcgi_temp_path /tmp/w/fastcgi;
  uwsgi_temp_path /tmp/w/uwsgi;
  scgi_temp_path /tmp/w/scgi;
  default_type application/octet-stream;
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000000;
  open_file_cache max=1000 inactive=60s;
  open_file_cache_valid 60s;
  server {
    listen 127.0.0.1:9443 ssl http2 backlog=4096;
    ssl_certificate $here/cert.pem;
    ssl_certificate_key $here/key.pem;
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_conf_command Options KTLS;
    root $1;
  }
}
C
}
waits() { for p in $1 $(cat /proc/$1/task/*/children 2>/dev/null); do cat /proc/$p/task/*/status; done | awk '/^voluntary/ {s += $2} END {printf "%d", s}'; }
cost() { for p in $1 $(cat /proc/$1/task/*/children 2>/dev/null); do cat /proc/$p/task/*/schedstat; done | awk '{s += $1} END {printf "%.0f", s}'; }
senders() { awk '/TlsTxSw/ {print $2}' /proc/net/tls_stat; }
for metrics in ${METRICS:-0 1}; do
echo $metrics > /proc/sys/net/ipv4/tcp_no_metrics_save
for d in ${DIRS:-/mem /disk}; do
for suite in ${SUITES:-one any}; do
for server in sealion nginx; do
    case $server in
    sealion)
        $sealion serve $d --listen 127.0.0.1:9443 --cert $here/cert.pem --key $here/key.pem --ktls always --workers 1 \
            --log warn --access-log off > /tmp/log 2>&1 &
        ;;
    nginx) conf $d; /usr/sbin/nginx -e stderr -p /tmp/w -c /tmp/w/nginx.conf > /tmp/log 2>&1 & ;;
    esac
    pid=$!
    until curl -sk -o /dev/null --max-time 5 https://127.0.0.1:9443/64k; do sleep 0.2; done
    for size in 64k 1m; do
        for warm in 1 2 3; do curl -sk -o /dev/null https://127.0.0.1:9443/$size; done
        for round in ${ROUNDS:-1 2}; do
            before=$(cost $pid) open=$(senders) slept=$(waits $pid)
            if [ $suite = one ]; then export OPENSSL_CONF=/tmp/ssl.cnf; else unset OPENSSL_CONF || true; fi
            wrk -t1 -c2 -d1 https://127.0.0.1:9443/$size > /tmp/out
            unset OPENSSL_CONF || true
            after=$(cost $pid) now=$(senders) woke=$(waits $pid)
            awk -v c=$((after - before)) -v w=$((woke - slept)) -v l="$(uname -r | cut -d . -f 1,2),$metrics,$d,$suite,$server,$size,$round,$((now - open))" \
                '/requests in/ {printf "RESULT,%s,%d,%d,%.2f\n", l, $1, c / $1, w / $1}' /tmp/out
        done
    done
    kill $pid; wait $pid || true
done
done
done
done
