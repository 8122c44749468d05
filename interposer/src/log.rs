//! One line to standard error, for people who look into the interposer itself: off unless `MIGM_LOG=1`.

use std::fmt::{self, Write};

use crate::settings;

/// A line in a buffer of its own, cut where it ends.
struct Line {
    bytes: [u8; 256],
    used: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - 1 - self.used;
        let taken = text.len().min(room);
        self.bytes[self.used..self.used + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.used += taken;
        Ok(())
    }
}

/// Writes `migm: ` and the text, if asked to.
pub fn line(text: fmt::Arguments<'_>) {
    if !settings::logs() {
        return;
    }
    let mut line = Line {
        bytes: [0; 256],
        used: 0,
    };
    let _ = write!(line, "migm: {text}");
    line.bytes[line.used] = b'\n';
    // SAFETY: the buffer holds `used + 1` bytes; a closed descriptor is answered with an error.
    unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.used + 1) };
}
