//! Files in `/proc/sys/kernel`.

pub(super) fn boot_id() -> Option<String> {
    text("/proc/sys/kernel/random/boot_id")
}

pub(super) fn host_name() -> Option<String> {
    text("/proc/sys/kernel/hostname")
}

fn text(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
