//! Which devices CUDA shows a process, from `CUDA_VISIBLE_DEVICES`.
//!
//! A list of indices, `GPU-<uuid>`, `MIG-<uuid>` or `MIG-GPU-<uuid>/<gi>/<ci>`; a UUID may be cut short as long as
//! one device fits. The list ends at the first entry that names nothing, or a device for the second time. With MIG on, a
//! GPU stands for its first MIG device, and for none while it has none. Drivers before R570 show a process one
//! MIG device; later ones show those listed, one per GPU instance.

use crate::identity::uuid_text;
use crate::machine::{DeviceRef, Machine};
use crate::mig::ComputeInstanceInfo;

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
        let several = self.driver_branch().shows_several_mig_devices();
        let mut shown: Vec<(u32, u32)> = Vec::new();
        devices.retain(|device| {
            let Some(slice) = device.slice else { return true };
            let place = (device.gpu, slice.gi);
            let surplus = if several {
                shown.contains(&place)
            } else {
                !shown.is_empty()
            };
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
            let is_it =
                |device: &DeviceRef| device.slice.is_some_and(|slice| (slice.gi, slice.ci) == (gi, ci));
            return self
                .devices_of(gpu)
                .into_iter()
                .map(|info| info.device)
                .find(is_it);
        }
        if let Some(prefix) = entry.strip_prefix("MIG-") {
            let all = (0..self.gpu_count()).flat_map(|gpu| self.devices_of(gpu));
            return only(all.filter(|info| starts(info.uuid, prefix))).map(|info| info.device);
        }
        if let Some(prefix) = entry.strip_prefix("GPU-") {
            return self.stands_for(self.gpu_of_uuid(prefix)?);
        }
        let index = entry.parse().ok()?;
        if index < self.gpu_count() {
            self.stands_for(index)
        } else {
            None
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{DEFAULT_DRIVER, Plan, remove};

    /// GPU 0 with MIG off, or a machine all with MIG on.
    fn machine(gpus: &str, mig: bool, driver: &str) -> Machine {
        let machine = Machine::create(&Plan::parse(gpus, mig, 0.001, driver).unwrap()).unwrap();
        remove(machine.id()).unwrap();
        machine
    }

    fn slice(machine: &Machine, gpu: u32, profile: u32, compute: u32) -> ComputeInstanceInfo {
        let instance = machine.create_gpu_instance(gpu, profile, None).unwrap();
        machine
            .create_compute_instance(instance.reference, compute, None)
            .unwrap()
    }

    fn indices(machine: &Machine, list: Option<&str>) -> Vec<u32> {
        machine.visible(list).iter().map(|device| device.gpu).collect()
    }

    #[test]
    fn the_list_ends_at_the_first_entry_that_names_nothing() {
        let machine = machine("a100-40gb:3", false, DEFAULT_DRIVER);
        assert_eq!(indices(&machine, None), [0, 1, 2]);
        for (list, expected) in [
            ("2,0", &[2, 0][..]),
            ("", &[]),
            ("-1", &[]),
            ("0,3,1", &[0]),
            ("1,x,0", &[1]),
            ("0,0,1", &[0]),
            (" 1 , 2", &[1, 2]),
        ] {
            assert_eq!(indices(&machine, Some(list)), expected, "{list}");
        }
    }

    #[test]
    fn a_uuid_may_be_cut_short_while_it_names_one() {
        let machine = machine("a100-40gb:2", false, DEFAULT_DRIVER);
        let uuid = uuid_text(machine.gpu_uuid(1).unwrap());
        assert_eq!(indices(&machine, Some(&format!("GPU-{}", &uuid[..20]))), [1]);
        assert_eq!(
            indices(&machine, Some(&format!("GPU-{}", uuid.to_uppercase()))),
            [1]
        );
        assert_eq!(indices(&machine, Some("GPU-")), []);
        assert_eq!(indices(&machine, Some(&uuid)), []);
    }

    #[test]
    fn with_mig_on_a_gpu_stands_for_its_first_device() {
        let machine = machine("a100-40gb:2", true, DEFAULT_DRIVER);
        assert_eq!(machine.visible(None), []);
        assert_eq!(machine.visible(Some("0")), []);
        let one = slice(&machine, 1, 19, 0);
        assert_eq!(machine.visible(None), [one.device]);
        let three = slice(&machine, 1, 9, 2);
        // GPU instance ids 13 and 1 or 2: the 3g comes first.
        assert_eq!(machine.visible(Some("1")), [three.device]);
        let gpu = uuid_text(machine.gpu_uuid(1).unwrap());
        assert_eq!(machine.visible(Some(&format!("GPU-{gpu}"))), [three.device]);
        let both = format!("MIG-{},MIG-{}", uuid_text(one.uuid), &uuid_text(three.uuid)[..12]);
        assert_eq!(machine.visible(Some(&both)), [one.device, three.device]);
        assert_eq!(
            machine.visible(Some(&format!("MIG-GPU-{gpu}/13/0"))),
            [one.device]
        );
    }

    #[test]
    fn an_old_driver_shows_one_mig_device() {
        let machine = machine("a100-40gb", true, "535.183.01");
        let (one, two) = (slice(&machine, 0, 19, 0), slice(&machine, 0, 19, 0));
        let both = format!("MIG-{},MIG-{}", uuid_text(one.uuid), uuid_text(two.uuid));
        assert_eq!(machine.visible(Some(&both)), [one.device]);
    }

    #[test]
    fn of_two_compute_instances_of_one_gpu_instance_one_is_shown() {
        let machine = machine("a100-40gb", true, DEFAULT_DRIVER);
        let instance = machine.create_gpu_instance(0, 9, None).unwrap().reference;
        let one = machine.create_compute_instance(instance, 0, None).unwrap();
        let two = machine.create_compute_instance(instance, 1, None);
        assert!(two.is_err(), "2c starts at 0, where the 1c is");
        let two = machine.create_compute_instance(instance, 0, None).unwrap();
        let both = format!("MIG-{},MIG-{}", uuid_text(two.uuid), uuid_text(one.uuid));
        assert_eq!(machine.visible(Some(&both)), [two.device]);
        assert_eq!(
            machine.device(one.device).name,
            "NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb"
        );
        assert_eq!(machine.device(one.device).sms, 14);
    }
}
