//! What a process had resident at most, as the kernel counts it: all of its peak, not what is there when one looks.

use std::fs;

/// From now on the peak is counted anew.
///
/// # Panics
/// When there is no such process, or it is somebody else's.
pub fn forget_peak(pid: u32) {
    // 5 resets the peak of the resident size (proc_pid_clear_refs(5)).
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the process is ours");
}

/// Kibibytes that were resident at most since the start or [`forget_peak`].
///
/// # Panics
/// When there is no such process.
pub fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|peak| peak.split_whitespace().next()?.parse().ok());
    peak.expect("the kernel counts it")
}
