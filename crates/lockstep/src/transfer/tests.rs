#[expect(
    clippy::arithmetic_side_effects,
    reason = "a test that overflows fails"
)]
mod incoming;
mod transfer;
