//! Who keeps a GPU in use. Often it is no CUDA process: monitors and plugins hold device files too.

use std::fs;
use std::path::Path;

use super::Process;
use super::error::Holder;

/// NVML's processes on a GPU instance, or on all of the GPU, then whoever has one of the GPU's device files
/// open as far as this user may see, without ourselves.
pub(super) fn holders(processes: &[Process], gi: Option<u32>, minor: Option<u32>) -> Vec<Holder> {
    let mut found: Vec<Holder> = processes
        .iter()
        .filter(|process| gi.is_none() || process.gi.is_none() || process.gi == gi)
        .map(|process| Holder {
            pid: process.pid,
            program: program(process.pid),
            holds: "GPU memory".to_owned(),
        })
        .collect();
    let device = minor.map(|minor| format!("/dev/nvidia{minor}"));
    for pid in pids() {
        if pid == std::process::id() || found.iter().any(|holder| holder.pid == pid) {
            continue;
        }
        if let Some(path) = open_device(pid, device.as_deref()) {
            found.push(Holder {
                pid,
                program: program(pid),
                holds: path,
            });
        }
    }
    found
}

fn pids() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn program(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .map_or_else(|_| "gone".to_owned(), |name| name.trim().to_owned())
}

fn open_device(pid: u32, device: Option<&str>) -> Option<String> {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .ok()?
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .find(|target| is_gpu_device(target, device))
        .map(|target| target.display().to_string())
}

/// A GPU's own file or a capability of MIG, also below another root: a container's, or a simulated machine's. The
/// control file says nothing about which GPU is used.
fn is_gpu_device(path: &Path, device: Option<&str>) -> bool {
    let Some(path) = path.to_str() else { return false };
    if path.contains("/dev/nvidia-caps/") {
        return true;
    }
    match device {
        Some(device) => path.ends_with(device),
        None => path
            .rsplit_once("/dev/nvidia")
            .is_some_and(|(_, rest)| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_file_names_no_holder() {
        for (path, device, is) in [
            ("/dev/nvidia0", None, true),
            ("/dev/nvidia0", Some("/dev/nvidia0"), true),
            ("/dev/nvidia10", Some("/dev/nvidia1"), false),
            ("/dev/nvidiactl", None, false),
            ("/dev/nvidia-uvm", None, false),
            ("/dev/nvidia-caps/nvidia-cap30", Some("/dev/nvidia0"), true),
            ("/dev/null", None, false),
            ("/run/root/dev/nvidia0", Some("/dev/nvidia0"), true),
            ("/run/root/dev/nvidia0", None, true),
            ("/run/root/dev/nvidia10", Some("/dev/nvidia1"), false),
        ] {
            assert_eq!(is_gpu_device(Path::new(path), device), is, "{path} {device:?}");
        }
    }

    #[test]
    fn a_process_on_another_instance_is_no_holder() {
        let on = |pid, gi| Process { pid, used: None, gi };
        let found = holders(&[on(1, Some(7)), on(2, Some(9))], Some(7), Some(9999));
        assert!(found.iter().any(|holder| holder.pid == 1));
        assert!(
            !found
                .iter()
                .any(|holder| holder.pid == 2 && holder.holds == "GPU memory")
        );
    }
}
