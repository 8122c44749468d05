//! Which devices CUDA shows a process, from `CUDA_VISIBLE_DEVICES`.
//!
//! A list of indices, `GPU-<uuid>`, `MIG-<uuid>` or `MIG-GPU-<uuid>/<gi>/<ci>`; a UUID may be cut short as long as
//! one device fits. The list ends at the first entry that names nothing, or a device for the second time. With MIG on, a
//! GPU stands for its first MIG device, and for none while it has none. Drivers before R570 show a process one
//! MIG device; later ones show those listed, one per GPU instance.

use crate::identity::uuid_text;
use crate::machine::{DeviceRef, Machine};
use crate::mig::ComputeInstanceInfo;

/// The branch from which a process may have several MIG devices.
const SEVERAL_MIG_DEVICES: u32 = 570;

impl Machine {
    /// The devices under this `CUDA_VISIBLE_DEVICES` (`None` = unset), in order.
    #[must_use]
    pub fn visible(&self, cuda_visible_devices: Option<&str>) -> Vec<DeviceRef> {
        let mut devices: Vec<DeviceRef> = Vec::new();
        match cuda_visible_devices {
            None => devices.extend((0..self.gpu_count()).filter_map(|gpu| self.stands_for(gpu))),
            Some(list) => {
                for entry in list.split(',') {
                    match self.named(entry.trim()) {
                        Some(device) if !devices.contains(&device) => devices.push(device),
                        _ => break,
                    }
                }
            }
        }
        self.drop_surplus(&mut devices);
        devices
    }

    /// Takes out the MIG devices that the driver does not show beside an earlier one.
    fn drop_surplus(&self, devices: &mut Vec<DeviceRef>) {
        let several = self.driver_branch() >= SEVERAL_MIG_DEVICES;
        let mut shown: Vec<(u32, u32)> = Vec::new();
        devices.retain(|device| {
            let Some(slice) = device.slice else { return true };
            let place = (device.gpu, slice.gi);
            let surplus = if several { shown.contains(&place) } else { !shown.is_empty() };
            shown.push(place);
            !surplus
        });
    }

    /// The whole GPU, or its first MIG device.
    fn stands_for(&self, gpu: u32) -> Option<DeviceRef> {
        let (on, _) = self.mig_mode(gpu).ok()?;
        if !on {
            return Some(DeviceRef { gpu, slice: None });
        }
        self.devices_of(gpu).first().map(|info| info.device)
    }

    fn devices_of(&self, gpu: u32) -> Vec<ComputeInstanceInfo> {
        self.mig_devices(gpu).into_iter().flatten().collect()
    }

    fn named(&self, entry: &str) -> Option<DeviceRef> {
        if let Some(path) = entry.strip_prefix("MIG-GPU-") {
            let mut parts = path.split('/');
            let gpu = self.gpu_of_uuid(parts.next()?)?;
            let (gi, ci) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            let is_it = |device: &DeviceRef| device.slice.is_some_and(|slice| (slice.gi, slice.ci) == (gi, ci));
            return self.devices_of(gpu).into_iter().map(|info| info.device).find(is_it);
        }
        if let Some(prefix) = entry.strip_prefix("MIG-") {
            let all = (0..self.gpu_count()).flat_map(|gpu| self.devices_of(gpu));
            return only(all.filter(|info| starts(info.uuid, prefix))).map(|info| info.device);
        }
        if let Some(prefix) = entry.strip_prefix("GPU-") {
            return self.stands_for(self.gpu_of_uuid(prefix)?);
        }
        let index = entry.parse().ok()?;
        if index < self.gpu_count() { self.stands_for(index) } else { None }
    }

    fn gpu_of_uuid(&self, prefix: &str) -> Option<u32> {
        only((0..self.gpu_count()).filter(|&gpu| self.gpu_uuid(gpu).is_some_and(|uuid| starts(uuid, prefix))))
    }
}

fn starts(uuid: [u8; 16], prefix: &str) -> bool {
    !prefix.is_empty() && uuid_text(uuid).starts_with(&prefix.to_ascii_lowercase())
}

fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    items.next().filter(|_| items.next().is_none())
}
