//! The soft cap: how many device bytes all processes of a job may have together.
//!
//! What a job is charged is what it has reserved, what its contexts cost, and what its processes have claimed
//! and the driver has not answered yet. A process claims before it asks the driver, so of two that ask at once
//! at least one sees the other. Once the driver has granted a request its bytes are counted as reserved first
//! and the claim is dropped then: in between they count twice, which may refuse what would just have fitted,
//! and never lets anything pass.

use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};

use super::CounterPage;

/// The cap does not allow it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{asked} bytes beside {charged} pass the cap of {cap}")]
pub struct OverCap {
    /// Bytes asked for.
    pub asked: u64,
    /// Bytes charged to the job without them.
    pub charged: u64,
    /// The cap.
    pub cap: u64,
}

impl CounterPage {
    /// Sets a device's cap where it has none yet: a cap that has been raised stays raised.
    pub fn set_cap(&self, device: usize, bytes: u64) {
        if let Some(totals) = self.devices.get(device) {
            let _ = totals.cap.compare_exchange(0, bytes.max(1), SeqCst, SeqCst);
        }
    }

    /// Raises a device's cap to `bytes`, if it has one and that is less.
    pub fn raise_cap(&self, device: usize, bytes: u64) {
        if let Some(totals) = self.devices.get(device)
            && totals.cap.load(SeqCst) != 0
        {
            totals.cap.fetch_max(bytes, SeqCst);
        }
    }

    /// A device's cap.
    #[must_use]
    pub fn cap(&self, device: usize) -> Option<u64> {
        let cap = self.devices.get(device)?.cap.load(SeqCst);
        (cap != 0).then_some(cap)
    }

    /// Bytes charged to the job on a device.
    #[must_use]
    pub fn charged(&self, device: usize) -> u64 {
        self.devices.get(device).map_or(0, |totals| {
            // The claims first: what moves from there to reserved meanwhile is counted twice, not missed.
            let claimed = totals.claimed.load(SeqCst);
            let contexts = totals.contexts.load(SeqCst);
            claimed
                .wrapping_add(contexts)
                .wrapping_add(totals.reserved.load(SeqCst))
        })
    }

    /// Reserved bytes of the job on a device and what its contexts are charged, while no request is under way:
    /// then these are all that the driver has given to it.
    #[must_use]
    pub fn settled(&self, device: usize) -> Option<(u64, u64)> {
        let totals = self.devices.get(device)?;
        let idle = totals.claimed.load(SeqCst) == 0;
        idle.then(|| (totals.reserved.load(SeqCst), totals.contexts.load(SeqCst)))
    }

    /// Claims `bytes` for a process, to be [dropped](Self::drop_claim) once the driver has answered.
    ///
    /// # Errors
    /// The cap does not allow it; nothing is claimed.
    pub fn claim(&self, slot: usize, device: usize, bytes: u64) -> Result<(), OverCap> {
        let (Some(totals), Some(lanes)) = (self.devices.get(device), self.lanes.get(slot)) else {
            return Ok(());
        };
        let cap = self.cap(device).unwrap_or(u64::MAX);
        totals.claimed.fetch_add(bytes, SeqCst);
        let with_it = self.charged(device);
        if with_it <= cap {
            lanes[0][device].claimed.fetch_add(bytes, SeqCst);
            return Ok(());
        }
        totals.claimed.fetch_sub(bytes, SeqCst);
        Err(OverCap {
            asked: bytes,
            charged: with_it.wrapping_sub(bytes),
            cap,
        })
    }

    /// The driver has answered: what it has granted is counted as reserved by now.
    pub fn drop_claim(&self, slot: usize, device: usize, bytes: u64) {
        if let (Some(totals), Some(lanes)) = (self.devices.get(device), self.lanes.get(slot)) {
            lanes[0][device].claimed.fetch_sub(bytes, SeqCst);
            totals.claimed.fetch_sub(bytes, SeqCst);
        }
    }

    /// Charges the contexts of the job's processes on a device so many bytes together, in equal parts, where they
    /// have been charged already: the driver's own figure in place of the first one.
    /// What each is charged now; `None` where none has been.
    pub fn correct_contexts(&self, device: usize, together: u64) -> Option<u64> {
        let totals = self.devices.get(device)?;
        let contexts = self.lanes.iter().filter_map(|lanes| lanes[0].get(device));
        let charged: Vec<_> = contexts
            .map(|lane| (&lane.context, lane.context.load(SeqCst)))
            .filter(|(_, bytes)| *bytes != 0)
            .collect();
        let each = together.checked_div(charged.len() as u64)?.max(1);
        for (context, had) in charged {
            // A process that has gone meanwhile has taken its own out.
            if context.compare_exchange(had, each, SeqCst, Relaxed).is_ok() {
                // Wraps where it becomes less, and so does the sum.
                totals.contexts.fetch_add(each.wrapping_sub(had), SeqCst);
            }
        }
        Some(each)
    }

    /// Charges what the process's context on a device costs, once; it is taken off when the process is gone.
    pub fn charge_context(&self, slot: usize, device: usize, bytes: u64) {
        if let (Some(totals), Some(lanes)) = (self.devices.get(device), self.lanes.get(slot))
            && bytes != 0
            && lanes[0][device]
                .context
                .compare_exchange(0, bytes, SeqCst, Relaxed)
                .is_ok()
        {
            totals.contexts.fetch_add(bytes, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Class;

    macro_rules! page {
        () => {{
            static PAGE: CounterPage = CounterPage::new();
            PAGE.format();
            let device = PAGE.device_index([7; 16]).unwrap();
            (&PAGE, device)
        }};
    }

    #[test]
    fn a_claim_within_the_cap_becomes_reserved_bytes() {
        let (page, device) = page!();
        let slot = page.join(1, 1, 1).unwrap();
        assert_eq!(page.claim(slot, device, 1 << 60), Ok(()), "no cap");
        page.drop_claim(slot, device, 1 << 60);
        page.set_cap(device, 100);
        page.charge_context(slot, device, 20);
        page.charge_context(slot, device, 20);
        assert_eq!(page.claim(slot, device, 80), Ok(()));
        page.add(slot, device, Class::Device, 80);
        page.drop_claim(slot, device, 80);
        assert_eq!(page.charged(device), 100);
        let over = OverCap {
            asked: 1,
            charged: 100,
            cap: 100,
        };
        assert_eq!(page.claim(slot, device, 1), Err(over));
        page.set_cap(device, 50);
        page.raise_cap(device, 101);
        assert_eq!(page.claim(slot, device, 1), Ok(()));
    }

    #[test]
    fn the_figures_are_settled_while_no_request_is_under_way() {
        let (page, device) = page!();
        let slot = page.join(1, 1, 1).unwrap();
        page.charge_context(slot, device, 30);
        page.claim(slot, device, 40).unwrap();
        assert_eq!(page.settled(device), None);
        page.add(slot, device, Class::Device, 40);
        page.drop_claim(slot, device, 40);
        assert_eq!(page.settled(device), Some((40, 30)));
    }

    #[test]
    fn what_a_killed_process_claimed_and_its_context_go_with_it() {
        let (page, device) = page!();
        let slot = page.join(1, 1, 1).unwrap();
        page.set_cap(device, 100);
        page.charge_context(slot, device, 30);
        page.claim(slot, device, 40).unwrap();
        page.leave(page.occupants()[0]);
        assert_eq!(page.charged(device), 0);
    }

    #[test]
    fn contexts_are_charged_what_the_driver_says_in_the_end() {
        let (page, device) = page!();
        assert_eq!(page.correct_contexts(device, 90), None, "nobody has a context");
        assert_eq!(page.charged(device), 0);
        let slots: Vec<_> = (1..=3).map(|pid| page.join(pid, 1, 1).unwrap()).collect();
        page.charge_context(slots[0], device, 100);
        page.charge_context(slots[1], device, 100);
        assert_eq!(page.correct_contexts(device, 90), Some(45));
        assert_eq!(page.charged(device), 90);
        page.correct_contexts(device, 110);
        assert_eq!(page.charged(device), 110);
        page.charge_context(slots[0], device, 7);
        page.leave(page.occupants()[1]);
        assert_eq!(page.charged(device), 55, "it took its part along");
    }

    #[test]
    fn another_attempt_starts_without_a_cap() {
        let (page, device) = page!();
        page.set_cap(device, 100);
        page.next_attempt();
        assert_eq!(page.cap(device), None);
    }

    #[test]
    fn many_at_once_do_not_pass_the_cap_together() {
        let (page, device) = page!();
        page.set_cap(device, 1000);
        let slots: Vec<_> = (1..=8).map(|pid| page.join(pid, 1, 1).unwrap()).collect();
        std::thread::scope(|scope| {
            for slot in slots {
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        if page.claim(slot, device, 300).is_ok() {
                            page.add(slot, device, Class::Device, 300);
                            page.drop_claim(slot, device, 300);
                            page.remove(slot, device, Class::Device, 300);
                        }
                    }
                });
            }
        });
        assert_eq!(page.charged(device), 0);
        assert!(page.read()[device].reserved_peak <= 900);
    }
}
