//! A server's public key as text.

use core::fmt;
use core::str::FromStr;

use crypto::PublicKey;

/// A server's public key: 130 hexadecimal digits. The server prints it and its clients pin it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ServerKey(pub(crate) PublicKey);

impl fmt::Display for ServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<PublicKey> for ServerKey {
    fn from(key: PublicKey) -> Self {
        Self(key)
    }
}

impl FromStr for ServerKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        text.trim().parse().map(Self).map_err(|_| KeyError)
    }
}

/// The text is not a valid server key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyError;

/// As `Display`, since a program that returns it from `main` prints it by `Debug`.
impl fmt::Debug for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

wire::error_text! { KeyError {
    Self => "a server key has 130 hexadecimal digits and is a point of P-256",
}}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_no_curve_point_is_refused() {
        assert_eq!("04".repeat(65).parse::<ServerKey>(), Err(KeyError));
        assert_eq!("".parse::<ServerKey>(), Err(KeyError));
        assert!(format!("{KeyError:?}").starts_with("a server key has 130 "));
    }
}
