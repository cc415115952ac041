# Sourced by vm.sh. Runs user-mode Linux: the kernel is an ordinary process.

prepare_uml() {
    [ "$(uname -sm)" = "Linux x86_64" ] || skip linux-x86-64 "runs user-mode Linux"
    # Its buffer for the registers of a process is smaller than those of AMX, so its first process ends it.
    ! grep -qsw amx_tile /proc/cpuinfo || skip no-amx "user-mode Linux cannot restore the registers of this processor"
    packages e2fsprogs kmod util-linux
}

start_uml() {
    {
        printf 'uid=%q run=%q checkout=%q target=%q filesystem=%q disks=%q modules=%q\n' "$uid" "$run" "$PWD" \
            "$target" \
            "$filesystem" "$(spare_disks ubd)" "$(echo "$kernel"/usr/lib/uml/modules/*)"
        cat ci/vm/uml-init
    } > "$run/init"
    chmod 755 "$run" "$run/init"
    local disk devices=()
    for disk in "${disks[@]}"; do devices+=("ubd$(letter ${#devices[@]})=$disk"); done
    # Its processes have sessions of their own: a namespace ends them all with the first.
    local own=(unshare --pid --fork --kill-child)
    [ "$(id -u)" = 0 ] || own+=(--user --map-current-user)
    # Its memory is a file in TMPDIR.
    TMPDIR=/dev/shm timeout --kill-after=5 "$seconds" "${own[@]}" "$kernel/usr/bin/linux.uml" "mem=${mib}M" \
        rootfstype=hostfs rootflags=/ ro \
        init=/bin/sh "ubda=$run/disk" "ubdb=$run/swap" "${devices[@]}" con=null con0=fd:0,fd:1 quiet -- "$run/init" \
        < /dev/null > "$run/console" 2>&1 &
    guest=$!
    processes+=("$guest")
}
