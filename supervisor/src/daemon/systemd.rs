//! systemd's side of a service: ready, alive, stopping. Without `NOTIFY_SOCKET` all of it does nothing.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Tells systemd that the loop still turns.
#[derive(Debug)]
pub struct Watchdog {
    period: Option<Duration>,
    last: Instant,
}

impl Watchdog {
    /// Reads `WATCHDOG_USEC`. A ping is sent at half of what systemd waits.
    #[must_use]
    pub fn from_environment() -> Self {
        Self {
            period: sd_notify::watchdog_enabled().map(|limit| limit / 2),
            last: Instant::now(),
        }
    }

    /// Pings if it is time.
    pub fn beat(&mut self) {
        if self.period.is_some_and(|period| self.last.elapsed() >= period) {
            self.last = Instant::now();
            notify(NotifyState::Watchdog);
        }
    }

    /// The longest that the loop may sleep.
    #[must_use]
    pub fn limit(&self) -> Option<Duration> {
        self.period.map(|period| period / 2)
    }
}

/// The socket listens.
pub fn ready() {
    notify(NotifyState::Ready);
}

/// The end begins.
pub fn stopping() {
    notify(NotifyState::Stopping);
}

/// A line for `systemctl status`.
pub fn status(line: &str) {
    notify(NotifyState::Status(line));
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}
