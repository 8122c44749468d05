//! What the built files export, and what they must not.

#[test]
fn placeholder() {}
