//! Names, passwords and their hashes.

use core::fmt;
use core::str::FromStr;

use argon2::password_hash::phc;
use argon2::password_hash::{Error, PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use crypto::Provider;
use zeroize::Zeroizing;

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

wire::error_text! { AccountNameError {
    Self => "an account name has 1 to 64 of a-z 0-9 . _ - @ +",
}}

/// A password as typed: 8 to 256 bytes of UTF-8. It is wiped on drop and never printed.
///
/// The text is not normalized: the caller decides on a Unicode normal form.
#[derive(Clone)]
pub struct Password(Zeroizing<String>);

impl Password {
    /// Shortest password, in bytes; NIST SP 800-63B, section 5.1.1.1.
    pub const LEN_MIN: usize = 8;
    /// Longest password, in bytes: room for a sentence, and a bound on copied input.
    pub const LEN_MAX: usize = 256;

    /// Wraps a password.
    ///
    /// # Errors
    ///
    /// [`PasswordError`] if it is too short or too long.
    pub fn new(text: impl Into<String>) -> Result<Self, PasswordError> {
        let text = Zeroizing::new(text.into());
        if (Self::LEN_MIN..=Self::LEN_MAX).contains(&text.len()) {
            Ok(Self(text))
        } else {
            Err(PasswordError)
        }
    }
}

wire::debug_fields!(Password);

/// The password is too short or too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordError;

impl fmt::Display for PasswordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (min, max) = (Password::LEN_MIN, Password::LEN_MAX);
        write!(f, "a password has {min} to {max} bytes")
    }
}

impl core::error::Error for PasswordError {}

/// Cost of an Argon2id hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost(Params);

impl Cost {
    /// 19 MiB, 2 passes, 1 lane: OWASP Password Storage Cheat Sheet, Argon2id. About 20 ms.
    pub const DEFAULT: Self = Self(Params::DEFAULT);
    /// Most memory of a hash in KiB, including hashes read from a store.
    pub const MEMORY_KIB_MAX: u32 = 262_144;
    /// Most passes over the memory.
    pub const PASSES_MAX: u32 = 16;
    /// Most lanes; they are computed sequentially.
    pub const LANES_MAX: u32 = 4;

    /// Creates a cost from memory in KiB (at least 8 per lane), passes, and lanes.
    ///
    /// `None` if one of them is out of range.
    #[must_use]
    pub fn new(memory_kib: u32, passes: u32, lanes: u32) -> Option<Self> {
        let is_allowed = memory_kib <= Self::MEMORY_KIB_MAX
            && passes <= Self::PASSES_MAX
            && lanes <= Self::LANES_MAX;
        let len = Some(Params::DEFAULT_OUTPUT_LEN);
        Params::new(memory_kib, passes, lanes, len)
            .ok()
            .filter(|_| is_allowed)
            .map(Self)
    }

    /// Hashes `password` with a new salt.
    ///
    /// # Errors
    ///
    /// [`HashError`] if the system lacks randomness or memory.
    pub fn hash<P: Provider>(
        &self,
        provider: &mut P,
        password: &Password,
    ) -> Result<PasswordHash, HashError> {
        let mut salt = [0; SALT_LEN];
        provider.random(&mut salt).map_err(|_| HashError)?;
        self.argon2()
            .hash_password_with_salt(password.0.as_bytes(), &salt)
            .map(PasswordHash)
            .map_err(|_| HashError)
    }

    fn argon2(&self) -> Argon2<'static> {
        Argon2::new(Algorithm::Argon2id, Version::V0x13, self.0.clone())
    }
}

impl Default for Cost {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A password hash in the PHC string format: `$argon2id$v=19$m=...,t=...,p=...$SALT$HASH`.
///
/// It contains its own cost. `Debug` does not print it, because it allows offline guessing.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(phc::PasswordHash);

impl PasswordHash {
    /// Longest string that is parsed, in bytes.
    pub const LEN_MAX: usize = 256;

    /// Returns whether `password` is correct. Takes the cost in the hash; the comparison is
    /// constant-time.
    ///
    /// # Errors
    ///
    /// [`HashError`] if the system lacks memory.
    pub fn verify(&self, password: &Password) -> Result<bool, HashError> {
        match Argon2::default().verify_password(password.0.as_bytes(), &self.0) {
            Ok(()) => Ok(true),
            Err(Error::PasswordInvalid) => Ok(false),
            Err(_) => Err(HashError),
        }
    }

    /// Returns whether it was made at this cost.
    #[must_use]
    pub fn has_cost(&self, cost: &Cost) -> bool {
        cost_of(&self.0).as_ref() == Some(cost)
    }
}

impl FromStr for PasswordHash {
    type Err = PasswordHashError;

    fn from_str(text: &str) -> Result<Self, PasswordHashError> {
        if text.len() > Self::LEN_MAX {
            return Err(PasswordHashError::Malformed);
        }
        let hash = phc::PasswordHash::new(text).map_err(|_| PasswordHashError::Malformed)?;
        if hash.algorithm != Algorithm::Argon2id.ident()
            || hash.version != Some(Version::V0x13.into())
        {
            return Err(PasswordHashError::Algorithm);
        }
        if hash.salt.is_none() || hash.hash.is_none() {
            return Err(PasswordHashError::Malformed);
        }
        match cost_of(&hash) {
            Some(_) => Ok(Self(hash)),
            None => Err(PasswordHashError::Cost),
        }
    }
}

/// The cost that a hash contains, if it is within the limits.
fn cost_of(hash: &phc::PasswordHash) -> Option<Cost> {
    let params = Params::try_from(hash).ok()?;
    let has_our_length = params.output_len() == Some(Params::DEFAULT_OUTPUT_LEN);
    let is_bare = params.keyid().is_empty() && params.data().is_empty();
    Cost::new(params.m_cost(), params.t_cost(), params.p_cost())
        .filter(|_| has_our_length && is_bare)
}

impl fmt::Display for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

wire::debug_fields!(PasswordHash);

/// Why a text is not a supported password hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PasswordHashError {
    /// It is not in the PHC string format, or a part is missing.
    Malformed,
    /// It is not Argon2id version 19.
    Algorithm,
    /// Its cost exceeds the limits of [`Cost`], or its output has another length.
    Cost,
}

wire::error_text! { PasswordHashError {
    Self::Malformed => "it is no string of the PHC format",
    Self::Algorithm => "the hash is not Argon2id of version 19",
    Self::Cost => "the cost of the hash is out of range",
}}

/// The system lacks randomness or the memory for a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashError;

wire::error_text! { HashError {
    Self => "the system gives no randomness, or not enough memory for a password hash",
}}

/// Bytes of salt; RFC 9106, section 3.1.
const SALT_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use crypto::Ring;

    use super::*;

    fn cheap() -> Cost {
        Cost::new(8, 1, 1).unwrap()
    }

    #[test]
    fn u21_a_hash_contains_its_parameters_and_verifies_its_password() {
        let password = Password::new("correct horse").unwrap();
        let hash = cheap().hash(&mut Ring::new(), &password).unwrap();
        let text = hash.to_string();
        assert!(text.starts_with("$argon2id$v=19$m=8,t=1,p=1$"), "{text}");
        let read: PasswordHash = text.parse().unwrap();
        assert_eq!(read.verify(&password), Ok(true));
        let other = Password::new("correct horsf").unwrap();
        assert_eq!(read.verify(&other), Ok(false));
        // The salt differs each time.
        assert_ne!(cheap().hash(&mut Ring::new(), &password).unwrap(), hash);
        assert!(read.has_cost(&cheap()));
        assert!(!read.has_cost(&Cost::default()));
    }

    #[test]
    fn the_default_cost_is_the_recommended_one() {
        let password = Password::new("correct horse").unwrap();
        let hash = Cost::default().hash(&mut Ring::new(), &password).unwrap();
        assert!(hash.to_string().contains("$m=19456,t=2,p=1$"));
    }

    #[test]
    fn u21_a_hash_of_the_reference_program_is_read() {
        // RFC 9106's reference: `echo -n password | argon2 somesalt -id -t 2 -m 8 -p 1`, from the
        // table of its test program (src/test.c, version 0x13).
        let text = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ\
                    $nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";
        let hash: PasswordHash = text.parse().unwrap();
        let password = Password::new("password").unwrap();
        assert_eq!(hash.verify(&password), Ok(true));
        assert_eq!(hash.to_string(), text);
    }

    #[test]
    fn a_hash_with_excessive_cost_is_not_computed() {
        let with = |algorithm: &str, version: u32, cost: &str| {
            let text = format!(
                "${algorithm}$v={version}${cost}$c29tZXNhbHQ\
                 $nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"
            );
            text.parse::<PasswordHash>().err()
        };
        assert_eq!(with("argon2id", 19, "m=262144,t=16,p=4"), None);
        for cost in [
            "m=262145,t=1,p=1",
            "m=4294967295,t=1,p=1",
            "m=8,t=17,p=1",
            "m=64,t=1,p=5",
            "m=7,t=1,p=1",
        ] {
            assert_eq!(
                with("argon2id", 19, cost),
                Some(PasswordHashError::Cost),
                "{cost}"
            );
        }
        assert_eq!(
            with("argon2i", 19, "m=8,t=1,p=1"),
            Some(PasswordHashError::Algorithm)
        );
        assert_eq!(
            with("argon2id", 16, "m=8,t=1,p=1"),
            Some(PasswordHashError::Algorithm)
        );
        for text in [
            "",
            "$",
            "password",
            "$argon2id$v=19$m=8,t=1,p=1",
            &"$".repeat(300),
        ] {
            let error = text.parse::<PasswordHash>().unwrap_err();
            assert_eq!(error, PasswordHashError::Malformed, "{text}");
        }
    }

    #[test]
    fn neither_password_nor_hash_is_printed() {
        let password = Password::new("correct horse").unwrap();
        let hash = cheap().hash(&mut Ring::new(), &password).unwrap();
        let printed = format!("{password:?} {hash:?}");
        assert!(
            !printed.contains("horse") && !printed.contains("argon2"),
            "{printed}"
        );
    }

    #[test]
    fn a_password_has_a_minimum_and_a_maximum_length() {
        for len in [Password::LEN_MIN, Password::LEN_MAX] {
            assert!(Password::new("a".repeat(len)).is_ok());
        }
        for len in [0, Password::LEN_MIN - 1, Password::LEN_MAX + 1, 1 << 20] {
            assert_eq!(Password::new("a".repeat(len)).err(), Some(PasswordError));
        }
    }

    #[test]
    fn names_are_lower_cased_and_confusable_characters_refused() {
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
