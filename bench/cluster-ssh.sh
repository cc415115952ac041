#!/usr/bin/env bash
# Measures batches over ssh beside GNU parallel: `bash bench/cluster-ssh.sh PIPEWRIGHT CHILD [ROUNDS]`. CHILD is a
# static program that does nothing (bench/c/exit0.c). Four nodes with eight slots each; all of them are this machine,
# behind an sshd of its own on 127.0.0.1. Prints a report in Markdown.
set -euo pipefail
tool=$(realpath "$1") child=$(realpath "$2") rounds=${3:-3}
work=$(mktemp -d)
sshd_pid=
finish() {
    [ -z "$sshd_pid" ] || kill "$sshd_pid"
    rm -rf "$work"
}
trap finish EXIT
cd "$work"
export XDG_CACHE_HOME=$work PARALLEL_HOME=$work/home
mkdir -p /run/sshd
# A home without profiles: GNU parallel starts a shell for each job, and a profile may take longer than the job. Without
# the file, it asks to be cited.
mkdir home
touch home/will-cite

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
for key in host user; do ssh-keygen -q -t ed25519 -N '' -f "$key"; done
cat > sshd_config << END
Port $port
ListenAddress 127.0.0.1
HostKey $work/host
AuthorizedKeysFile $work/user.pub
StrictModes no
UsePAM no
PidFile none
PasswordAuthentication no
PermitRootLogin prohibit-password
SetEnv HOME=$work/home
MaxStartups 200
MaxSessions 200
END
echo "[127.0.0.1]:$port $(cat host.pub)" > known
cat > config << END
Host n1 n2 n3 n4
    HostName 127.0.0.1
    Port $port
    IdentityFile $work/user
    UserKnownHostsFile $work/known
    BatchMode yes
    LogLevel ERROR
END
/usr/sbin/sshd -D -e -f sshd_config 2> /dev/null &
sshd_pid=$!
until ssh -F config n1 true 2> /dev/null; do sleep 0.1; done

now() { echo "${EPOCHREALTIME/,/.}"; }
# Prints the median, the least and the greatest of the numbers on stdin.
summary() { sort -n | awk '{ a[NR] = $1 } END { printf "%.0f (%.0f..%.0f)", a[int((NR + 1) / 2)], a[1], a[NR] }'; }
per_second() { awk -v count="$1" -v from="$2" -v to="$(now)" 'BEGIN { print count / (to - from) }'; }

hosts=8/n1,8/n2,8/n3,8/n4
via=(); for node in n1 n2 n3 n4; do via+=(--via "ssh -F $work/config $node"); done
seq 10000 > list
for ((round = 0; round < rounds; round++)); do
    from=$(now)
    "$tool" batch --quiet -j8 "${via[@]}" --worker-path "$tool" --log "log$round" --from list -- "$child"
    per_second 10000 "$from" >> ours
    from=$(now)
    seq 200 | parallel --ssh "ssh -F $work/config" -S "$hosts" --joblog "joblog$round" "$child"
    per_second 200 "$from" >> parallel
    from=$(now)
    seq 200 | parallel --ssh "ssh -F $work/config" -S "$hosts" --controlmaster --joblog "joblog$round" "$child"
    per_second 200 "$from" >> shared
done
echo "| over ssh, 4 nodes x 8 slots, with a log | median (min..max) |"
echo "|---|--:|"
echo "| \`pipewright batch --via\`, 10,000 jobs that do nothing, from the start of the tool | $(summary \
    < ours) jobs/s |"
echo "| GNU parallel $(parallel --version | awk 'NR == 1 { print $3 }'), 200 jobs | $(summary < parallel) jobs/s |"
echo "| the same with \`--controlmaster\` | $(summary < shared) jobs/s |"
