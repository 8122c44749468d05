//! The soft cap.
