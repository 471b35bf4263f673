//! Keys of the API: who may do what. The hub's file holds digests only.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};

use crypto::{Provider as _, Ring, Secret32};
use hub::Name;

use crate::exit::{Failure, SystemFault};
use crate::{hex, trust};

/// What a key permits. Each role includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Access {
    /// Reads the metrics.
    Metrics,
    /// Reads mail, presence, keys and statistics.
    Read,
    /// Sends and acknowledges mail, sends live messages, and changes keys and leases.
    Write,
    /// Disconnects players, exports and deletes their data, and drains the hub.
    Admin,
}

impl Access {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Metrics, "metrics"),
        (Self::Read, "read"),
        (Self::Write, "write"),
        (Self::Admin, "admin"),
    ];

    /// Returns its name in the key file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

impl FromStr for Access {
    type Err = KeyFault;

    fn from_str(text: &str) -> Result<Self, KeyFault> {
        let found = Self::ALL.into_iter().find(|(_, name)| *name == text);
        found.map(|(access, _)| access).ok_or(KeyFault::Role)
    }
}

/// What is wrong in a line of the key file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFault {
    /// Not three words.
    Form,
    /// Not 64 hexadecimal digits.
    Digest,
    /// No such role.
    Role,
    /// Not a name.
    Name,
    /// A digest that an earlier line has.
    Twice,
    /// More lines than allowed.
    TooMany,
}

impl fmt::Display for KeyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => "expected SHA256 ROLE NAME",
            Self::Digest => "the SHA-256 of a key has 64 hexadecimal digits",
            Self::Role => "the role is none of metrics, read, write, admin",
            Self::Name => "a name has 1 to 32 of a-z 0-9 . _ -",
            Self::Twice => "an earlier line has this key",
            Self::TooMany => "more than 256 keys",
        })
    }
}

impl std::error::Error for KeyFault {}

/// A line of the key file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyEntry {
    digest: [u8; 32],
    access: Access,
    name: Name,
}

impl fmt::Display for KeyEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = hex::encode(&self.digest);
        write!(f, "{digest} {} {}", self.access.name(), self.name)
    }
}

impl FromStr for KeyEntry {
    type Err = KeyFault;

    fn from_str(line: &str) -> Result<Self, KeyFault> {
        let mut words = line.split_whitespace();
        let (Some(digest), Some(access), Some(name), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(KeyFault::Form);
        };
        let digest = hex::decode(digest).and_then(|digest| digest.try_into().ok());
        Ok(Self {
            digest: digest.ok_or(KeyFault::Digest)?,
            access: access.parse()?,
            name: Name::new(name).map_err(|_| KeyFault::Name)?,
        })
    }
}

/// Keys in a file, at most.
const KEYS_MAX: usize = 256;

/// Longest key file, bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;

fn parse(text: &str) -> Result<Vec<KeyEntry>, (u32, KeyFault)> {
    let mut entries: Vec<KeyEntry> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let entry: KeyEntry = line.parse().map_err(|fault| (number, fault))?;
        if entries.iter().any(|other| other.digest == entry.digest) {
            return Err((number, KeyFault::Twice));
        }
        if entries.len() >= KEYS_MAX {
            return Err((number, KeyFault::TooMany));
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// Reads the key file at `path`: lines of `SHA256 ROLE NAME`, empty ones, and comments with `#`.
///
/// # Errors
///
/// One sentence with the path: the file is missing, others may read it, or a line is wrong.
fn read(path: &Path) -> Result<Vec<KeyEntry>, Failure> {
    let text = trust::read_private(path, "the API's keys", FILE_BYTES_MAX)?;
    parse(&text).map_err(|(line, fault)| {
        let mut failure = Failure::file(path, format_args!("line {line}: {fault}"));
        failure.line = Some(line);
        failure
    })
}

/// The keys in force. Clones share them, so they can be read again while the API runs.
#[derive(Clone, Debug)]
pub(crate) struct KeyRing(Arc<RwLock<Vec<KeyEntry>>>);

impl KeyRing {
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        Ok(Self(Arc::new(RwLock::new(read(path)?))))
    }

    /// Reads the file again. If it is invalid, the keys in force stay.
    pub(crate) fn reload(&self, path: &Path) -> Result<(), Failure> {
        let entries = read(path)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = entries;
        Ok(())
    }

    /// Returns the name and access of the key, if it is listed. The time depends on the number of
    /// keys only.
    pub(crate) fn find(&self, token: &str) -> Option<(Name, Access)> {
        let digest = Ring::new().sha256(&[token.as_bytes()]);
        let entries = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = None;
        for entry in entries.iter() {
            if crypto::equal(&entry.digest, &digest) {
                found = Some((entry.name, entry.access));
            }
        }
        found
    }
}

/// Draws a key, writes it to a new file of mode 0600, and appends its digest to the hub's key file,
/// which is created if it does not exist. Returns the appended line.
pub(crate) fn create(
    token_file: &Path,
    key_file: &Path,
    (access, name): (Access, Name),
) -> Result<String, Failure> {
    let known = if key_file.exists() {
        read(key_file)?
    } else {
        Vec::new()
    };
    if known.len() >= KEYS_MAX {
        return Err(Failure::file(key_file, KeyFault::TooMany));
    }
    let mut ring = Ring::new();
    let mut secret = [0; 32];
    ring.random(&mut secret).map_err(|_| trust::no_entropy())?;
    let secret = Secret32::take(&mut secret);
    let token = zeroize::Zeroizing::new(hex::encode(secret.expose()));
    let entry = KeyEntry {
        digest: ring.sha256(&[token.as_bytes()]),
        access,
        name,
    };
    trust::write_new_private(token_file, format!("{}\n", *token).as_bytes())?;
    let line = entry.to_string();
    append(key_file, &line).inspect_err(|_| {
        // A key that the hub does not know is of no use.
        fs::remove_file(token_file).unwrap_or_default();
    })?;
    Ok(line)
}

/// Appends a line; ends the last one first if an editor has not.
fn append(path: &Path, line: &str) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let appended = options.open(path).and_then(|mut file| {
        let mut last = [b'\n'];
        if file.metadata()?.len() > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        let end = if last == *b"\n" { "" } else { "\n" };
        file.write_all(format!("{end}{line}\n").as_bytes())?;
        file.sync_all()
    });
    appended.map_err(|error| Failure::file(path, SystemFault(&error)))
}

/// Reads the token of a client from a file that [`create`] has written.
pub(crate) fn read_token(path: &Path) -> Result<zeroize::Zeroizing<String>, Failure> {
    let text = trust::read_private(path, "the API key", FILE_BYTES_MAX)?;
    let token = text.trim();
    let is_token = token.len() == 64 && token.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_token {
        return Err(Failure::file(
            path,
            "it holds no key of 64 hexadecimal digits",
        ));
    }
    Ok(zeroize::Zeroizing::new(token.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    #[test]
    fn lines_are_digest_role_and_name() {
        let text = format!("# shop\n\n{DIGEST} write shop\n");
        let entries = parse(&text).unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].to_string(), format!("{DIGEST} write shop"));
        for (line, fault) in [
            ("one two", KeyFault::Form),
            ("one two three four", KeyFault::Form),
            ("9f write shop", KeyFault::Digest),
            (&format!("{DIGEST} owner shop"), KeyFault::Role),
            (&format!("{DIGEST} write Shop!"), KeyFault::Name),
            (&format!("{DIGEST} read other"), KeyFault::Twice),
        ] {
            assert_eq!(parse(&format!("{text}{line}")), Err((4, fault)), "{line}");
        }
    }

    #[test]
    fn a_key_is_appended_after_a_line_without_an_end() {
        let name = |name| format!("tickwire-key-{}-{name}", std::process::id());
        let [keys, token] = ["keys", "token"].map(|file| std::env::temp_dir().join(name(file)));
        for path in [&keys, &token] {
            fs::remove_file(path).unwrap_or_default();
        }
        trust::write_new_private(&keys, format!("{DIGEST} write shop").as_bytes()).unwrap();
        let line = create(&token, &keys, (Access::Read, Name::new("web").unwrap())).unwrap();
        let text = fs::read_to_string(&keys).unwrap();
        assert_eq!(text, format!("{DIGEST} write shop\n{line}\n"));
        assert_eq!(read(&keys).unwrap().len(), 2);
        for path in [&keys, &token] {
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn keys_max_is_a_limit() {
        let line = |number: usize| format!("{number:064x} read name\n");
        let text: String = (0..KEYS_MAX).map(line).collect();
        assert_eq!(parse(&text).unwrap().len(), KEYS_MAX);
        let text: String = (0..=KEYS_MAX).map(line).collect();
        assert_eq!(parse(&text), Err((257, KeyFault::TooMany)));
    }

    #[test]
    fn a_key_is_found_by_its_digest() {
        let entries = parse(&format!("{DIGEST} write shop")).unwrap();
        let ring = KeyRing(Arc::new(RwLock::new(entries)));
        let shop = Name::new("shop").unwrap();
        assert_eq!(ring.find("test"), Some((shop, Access::Write)));
        assert_eq!(ring.find("Test"), None);
        assert_eq!(ring.find(""), None);
    }

    #[test]
    fn each_role_includes_those_before_it() {
        let ordered = Access::ALL.map(|(access, _)| access);
        assert!(ordered.is_sorted() && ordered[0] < ordered[3]);
        for (access, name) in Access::ALL {
            assert_eq!((access.name(), name.parse()), (name, Ok(access)));
        }
    }
}
