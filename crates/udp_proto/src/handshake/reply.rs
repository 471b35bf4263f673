//! RETRY, REFUSE and VERSION: what a server answers without keeping anything.

#![warn(clippy::arithmetic_side_effects)]

use wire::{Reader, Truncated, Writer};

use super::VERSION_1;
use super::hello::COOKIE_LEN;

/// First byte of a RETRY.
pub const RETRY: u8 = 0xC2;
/// First byte of a REFUSE.
pub const REFUSE: u8 = 0xC4;
/// First byte of a VERSION.
pub const VERSION: u8 = 0xC5;
/// What a REFUSE's mac covers, bytes.
pub const REFUSE_COVERED: usize = 15;
/// Most versions that a VERSION may list.
const VERSION_COUNT_MAX: u8 = 8;

/// `0xC2 | version 4 | hello_id 8 | cookie 32`, 45 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The HELLO it answers.
    pub hello_id: u64,
    /// What the client sends back in the same HELLO.
    pub cookie: [u8; COOKIE_LEN],
}

impl Retry {
    /// Reads a RETRY, strictly.
    ///
    /// # Errors
    ///
    /// [`ReplyError`] for another length or version.
    pub fn decode(datagram: &[u8]) -> Result<Self, ReplyError> {
        let mut reader = start(datagram)?;
        let retry = Self {
            hello_id: reader.u64()?,
            cookie: reader.array()?,
        };
        end(&reader, retry)
    }

    /// Appends the 45 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(RETRY);
        writer.u32(VERSION_1);
        writer.u64(self.hello_id);
        writer.bytes(&self.cookie);
    }
}

/// `0xC4 | version 4 | hello_id 8 | reason 2 | mac 16`, 31 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refuse {
    /// The HELLO it answers.
    pub hello_id: u64,
    /// Why, as in a CLOSE frame.
    pub reason: u16,
    /// Shows that the sender opened the token; zero makes it a hint only.
    pub mac: [u8; 16],
}

impl Refuse {
    /// Reads a REFUSE, strictly.
    ///
    /// # Errors
    ///
    /// [`ReplyError`] for another length or version.
    pub fn decode(datagram: &[u8]) -> Result<Self, ReplyError> {
        let mut reader = start(datagram)?;
        let refuse = Self {
            hello_id: reader.u64()?,
            reason: reader.u16()?,
            mac: reader.array()?,
        };
        end(&reader, refuse)
    }

    /// Appends the 31 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let covered = self.covered();
        let mut writer = Writer::new(out);
        writer.bytes(&covered);
        writer.bytes(&self.mac);
    }

    /// Returns the bytes that the mac covers.
    pub const fn covered(&self) -> [u8; REFUSE_COVERED] {
        let [v0, v1, v2, v3] = VERSION_1.to_be_bytes();
        let [h0, h1, h2, h3, h4, h5, h6, h7] = self.hello_id.to_be_bytes();
        let [r0, r1] = self.reason.to_be_bytes();
        [
            REFUSE, v0, v1, v2, v3, h0, h1, h2, h3, h4, h5, h6, h7, r0, r1,
        ]
    }
}

/// `0xC5 | hello_id 8 | n 1 | versions 4 n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The HELLO it answers.
    pub hello_id: u64,
    /// The highest version named that we speak too.
    pub common: Option<u32>,
}

impl Versions {
    /// Reads a VERSION, strictly.
    ///
    /// # Errors
    ///
    /// [`ReplyError`] for a count of 0 or over 8, or another length.
    pub fn decode(datagram: &[u8]) -> Result<Self, ReplyError> {
        let mut reader = Reader::new(datagram);
        reader.u8()?;
        let hello_id = reader.u64()?;
        let count = reader.u8()?;
        if count == 0 || count > VERSION_COUNT_MAX {
            return Err(ReplyError);
        }
        let mut common = None;
        for _ in 0..count {
            let version = reader.u32()?;
            if version == VERSION_1 {
                common = Some(version);
            }
        }
        end(&reader, Self { hello_id, common })
    }

    /// Appends the reply of a server that speaks version 1 only.
    pub fn encode(hello_id: u64, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(VERSION);
        writer.u64(hello_id);
        writer.u8(1);
        writer.u32(VERSION_1);
    }
}

/// A datagram is no reply of version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyError;

impl From<Truncated> for ReplyError {
    fn from(_: Truncated) -> Self {
        Self
    }
}

/// Reads the first byte, which the caller has looked at, and the version.
fn start(datagram: &[u8]) -> Result<Reader<'_>, ReplyError> {
    let mut reader = Reader::new(datagram);
    reader.u8()?;
    if reader.u32()? == VERSION_1 {
        Ok(reader)
    } else {
        Err(ReplyError)
    }
}

/// Nothing may follow.
const fn end<T: Copy>(reader: &Reader<'_>, value: T) -> Result<T, ReplyError> {
    if reader.is_empty() {
        Ok(value)
    } else {
        Err(ReplyError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_as_they_are_written() {
        let retry = Retry {
            hello_id: 1,
            cookie: [2; COOKIE_LEN],
        };
        let refuse = Refuse {
            hello_id: 3,
            reason: 16,
            mac: [4; 16],
        };
        let mut out = Vec::new();
        retry.encode(&mut out);
        assert_eq!((out.len(), Retry::decode(&out)), (45, Ok(retry)));
        out.clear();
        refuse.encode(&mut out);
        assert_eq!((out.len(), Refuse::decode(&out)), (31, Ok(refuse)));
        assert_eq!(&out[..REFUSE_COVERED], &refuse.covered());
        out.clear();
        Versions::encode(5, &mut out);
        assert_eq!(
            (out.len(), Versions::decode(&out)),
            (
                14,
                Ok(Versions {
                    hello_id: 5,
                    common: Some(VERSION_1)
                })
            )
        );
    }

    #[test]
    fn a_byte_more_or_less_is_refused() {
        let mut out = Vec::new();
        Versions::encode(5, &mut out);
        out.push(0);
        assert_eq!(Versions::decode(&out), Err(ReplyError));
        out.truncate(13);
        assert_eq!(Versions::decode(&out), Err(ReplyError));
        assert_eq!(Retry::decode(&[RETRY; 45]), Err(ReplyError));
    }
}
