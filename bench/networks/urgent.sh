#!/bin/sh
# Times a request of 10 kB behind 64 MB on one HTTP/2 connection: 10 Mbit/s, 40 ms on the way back, a queue of 50 packets.
#   cargo xtask guest --icount --kernel 6.1,7.2 --include … --exec 'sh bench/networks/urgent.sh BEFORE AFTER CERT KEY'
# BEFORE and AFTER are two programs. Included are these, this directory, CERT and KEY, /usr/sbin/tc, /usr/sbin/ip, /usr/bin/curl,
# /usr/bin/python3.11 and /usr/lib/python3.11. Lines RESULT are the rows of urgent.csv. Lines COST are those of urgent-cost.csv: seconds
# and instructions of the server for 8 MB, without a priority and with one. Both files were recorded on 2026-11-28 with programs
# of the dev profile.
set -eu
before=$1 after=$2 cert=$3 key=$4 here=$(dirname "$0")
ip=/usr/sbin/ip tc=/usr/sbin/tc
$ip link set lo up
mkdir -p /var/run /tmp/www /tmp/home
export HOME=/tmp/home
head -c 64000000 /dev/zero > /tmp/www/large
head -c 8000000 /dev/zero > /tmp/www/medium
head -c 10000 /dev/urandom > /tmp/www/small
$ip netns add client
$ip link add s0 type veth peer name c0 netns client
$ip addr add 10.9.0.1/24 dev s0
$ip link set s0 up gso_max_segs 1
$ip netns exec client $ip addr add 10.9.0.2/24 dev c0
$ip netns exec client $ip link set c0 up gso_max_segs 1
echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save
$ip netns exec client $tc qdisc replace dev c0 root netem delay 40ms limit 4000
$tc qdisc replace dev s0 root netem rate 10mbit limit 50
kernel=$(uname -r | cut -d . -f 1,2)
run_time() { cat /proc/"$1"/task/*/schedstat | awk '{ sum += $1 } END { printf "%.0f", sum }'; }
for ktls in never always; do
    for program in "before $before" "after $after"; do
        ${program#* } serve /tmp/www --listen 10.9.0.1:8443 --cert "$cert" --key "$key" --ktls $ktls > /tmp/log 2>&1 &
        server=$!
        sleep 4
        $ip netns exec client /usr/bin/python3.11 "$here/urgent.py" 10.9.0.1 8443 /large /small 9 2000000 700000 > /tmp/out
        while read -r ms bytes; do echo "RESULT,$kernel,$ktls,${program%% *},$ms,$bytes"; done < /tmp/out
        for priority in none u=5; do
            case $priority in none) field="x: y" ;; *) field="priority: $priority" ;; esac
            earlier=$(run_time $server)
            seconds=$($ip netns exec client curl --http2 -sk -H "$field" -o /dev/null -w '%{time_total}' https://10.9.0.1:8443/medium)
            echo "COST,$kernel,$ktls,${program%% *},$priority,$seconds,$(($(run_time $server) - earlier))"
        done
        kill $server
        wait $server || true
    done
done
