# Sourced by vm.sh. Runs a kernel in qemu, which emulates the processor: no hardware support is needed.

prepare_qemu() {
    packages qemu-system-common cpio kmod e2fsprogs
    case $arch in
        amd64) packages qemu-system-x86 ;;
        arm64) packages qemu-system-arm ;;
        riscv64) packages qemu-system-misc ;;
    esac
    virtiofsd=/usr/lib/qemu/virtiofsd
    [ -x "$virtiofsd" ] || skip "file:$virtiofsd" "qemu has none here (Debian 12 has one)"
    # The folder of a mount is shared, and only root may mount.
    [ "$(id -u)" = 0 ] || skip root "shares its files with a guest"
}

start_qemu() {
    local program console hardware files i disk extra=()
    case $arch in
        # On a busy machine the kernel sees no tick of the emulated timer in the time it has for that, and gives up.
        amd64) program=qemu-system-x86_64 console="ttyS0 no_timer_check" hardware=(-M q35 -cpu max) ;;
        arm64) program=qemu-system-aarch64 console=ttyAMA0 hardware=(-M virt -cpu max,pauth-impdef=on) ;;
        riscv64) program=qemu-system-riscv64 console=ttyS0 hardware=(-M virt -cpu rv64) ;;
    esac
    mkdir "$run/initramfs" "$run/root"
    printf 'uid=%q\ncheckout=%q\ntarget=%q\nfilesystem=%q\nmodules=%q\ndisks=%q\n' "$uid" "$PWD" "$target" \
        "$filesystem" \
        "$(guest_modules)" "$(spare_disks vd)" > "$run/initramfs/settings"
    cp "$run/command" "$run/initramfs/command"
    # A second archive, behind that of the kernel.
    (cd "$run/initramfs" && find . | cpio -o -H newc --quiet) | cat "$kernel/initrd" - > "$run/initrd"

    # The root of the guest, read-only and without the file systems that are mounted in it. Another processor's system
    # has this checkout at the same place.
    unshare --mount --propagation private bash -c '
        set -e
        root=$1 place=$2 daemon=$3 socket=$4; shift 4
        mount --bind "$root" "$place"
        for folder; do mkdir -p "$root$folder"; mount --bind "$folder" "$place$folder"; done
        mount -o remount,bind,ro "$place"
        exec "$daemon" --socket-path="$socket" -o source="$place" -o cache=always -o sandbox=chroot' - \
        "$(guest_root)" "$run/root" "$virtiofsd" "$run/files" $(shared_folders) > "$run/files.log" 2>&1 &
    processes+=($!)
    for ((i = 0; i < 200; i++)); do [ ! -S "$run/files" ] || break; sleep 0.05; done
    [ -S "$run/files" ] || { cat "$run/files.log" >&2; fail "virtiofsd did not start"; }

    disk_options=()
    attach "$run/disk"
    attach "$run/swap"
    for disk in "${disks[@]}"; do attach "$disk"; done
    timeout --kill-after=5 "$seconds" "$program" "${hardware[@]}" -accel tcg,thread=multi -smp "$cpus" -m "$mib" \
        -nodefaults -no-user-config -display none -no-reboot -monitor none \
        -object "memory-backend-memfd,id=memory,size=${mib}M,share=on" -numa node,memdev=memory \
        -kernel "$kernel/vmlinuz" -initrd "$run/initrd" -append "console=$console panic=-1 quiet loglevel=4" \
        -serial "file:$run/console" \
        -chardev "socket,id=files,path=$run/files" -device vhost-user-fs-pci,chardev=files,tag=root \
        "${disk_options[@]}" -device virtio-rng-pci -device virtio-serial-pci \
        -chardev "file,id=output,path=$run/output" -device virtserialport,chardev=output,nr=1 \
        -chardev "file,id=status,path=$run/status" -device virtserialport,chardev=status,nr=2 < /dev/null &
    guest=$!
    processes+=("$guest")
}

# Attaches a file as the next disk. What the guest writes need not survive this machine.
attach() {
    local id=disk${#disk_options[@]}
    disk_options+=(-drive "file=$1,if=none,id=$id,format=raw,cache=unsafe" -device "virtio-blk-pci,drive=$id")
}

# The root of another processor's system is a folder in the cache.
guest_root() { if [ "$arch" = amd64 ]; then echo /; else echo "$kernel/root"; fi; }

# The folders of this machine that the root of the guest lacks.
shared_folders() { [ "$arch" = amd64 ] || printf '%s\n' "$PWD" "$target" | sort -u; }

# The folder of the kernel's modules as the guest sees it.
guest_modules() { if [ "$arch" = amd64 ]; then echo "$kernel"/lib/modules/*; fi; }
