//! The name of an account.

use core::fmt;
use core::str::FromStr;

/// An account name: 1 to 64 of `a-z 0-9 . _ - @ +`. Upper-case letters are lowered.
///
/// So no two different names look alike, any name is safe to log, and an ASCII mail address is a
/// valid name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccountName {
    /// The name, padded with zeros.
    bytes: [u8; Self::LEN_MAX],
    len: u8,
}

impl AccountName {
    /// Longest name, in bytes.
    pub const LEN_MAX: usize = 64;

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..self.len.into()).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl FromStr for AccountName {
    type Err = AccountNameError;

    fn from_str(text: &str) -> Result<Self, AccountNameError> {
        let len = u8::try_from(text.len()).map_err(|_| AccountNameError)?;
        let mut bytes = [0; Self::LEN_MAX];
        let room = bytes.get_mut(..text.len()).ok_or(AccountNameError)?;
        for (byte, given) in room.iter_mut().zip(text.bytes()) {
            *byte = match given.to_ascii_lowercase() {
                it @ (b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'@' | b'+') => it,
                _ => return Err(AccountNameError),
            };
        }
        if len == 0 {
            return Err(AccountNameError);
        }
        Ok(Self { bytes, len })
    }
}

impl fmt::Display for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// The text is not a valid account name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountNameError;

impl fmt::Display for AccountNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an account name has 1 to 64 of a-z 0-9 . _ - @ +")
    }
}

impl core::error::Error for AccountNameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capitals_are_small_letters_and_what_only_looks_alike_is_refused() {
        let name: AccountName = "Ann.B+game@Example.org".parse().unwrap();
        assert_eq!(name.as_str(), "ann.b+game@example.org");
        assert_eq!("ANN".parse::<AccountName>(), "ann".parse());
        let longest = "a".repeat(AccountName::LEN_MAX);
        assert_eq!(longest.parse::<AccountName>().unwrap().as_str(), longest);
        let too_long = "a".repeat(AccountName::LEN_MAX + 1);
        let huge = "a".repeat(1 << 16);
        for wrong in [
            "",
            " ann",
            "a/b",
            "a\\b",
            "аnn",
            "a\0",
            "a\n",
            "ann\u{200b}",
            &too_long,
            &huge,
        ] {
            assert_eq!(
                wrong.parse::<AccountName>(),
                Err(AccountNameError),
                "{wrong:?}"
            );
        }
    }
}
