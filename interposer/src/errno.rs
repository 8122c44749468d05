//! `errno` as the program left it.

/// Runs `body`, which makes system calls, and gives the thread its `errno` back.
pub fn kept<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: the C library returns the address of the calling thread's own `errno`, valid for its life.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above; only this thread reads or writes it.
    let before = unsafe { *place };
    let result = body();
    // SAFETY: as above.
    unsafe { *place = before };
    result
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_system_call_of_ours_leaves_no_trace() {
        // SAFETY: an invalid descriptor is answered with an error.
        let close = || unsafe { libc::close(-1) };
        let before = std::io::Error::last_os_error().raw_os_error();
        super::kept(close);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), before);
        close();
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
    }
}
