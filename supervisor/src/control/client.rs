//! The blocking client of the control socket.
