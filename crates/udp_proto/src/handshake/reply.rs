//! RETRY, REFUSE and VERSION: stateless answers of a server, and the cookies of a RETRY.

use core::net::SocketAddr;
use core::time::Duration;

use crypto::{NoEntropy, Provider, Secret32};
use wire::address::mapped;
use wire::codec::concat;
use wire::{Instant, Reader, Writer};

use super::hello::{COOKIE_LEN, Hello0};
use super::{Malformed, is_known};

/// First byte of a RETRY.
pub const RETRY: u8 = 0xC2;
/// First byte of a REFUSE.
pub const REFUSE: u8 = 0xC4;
/// First byte of a VERSION.
pub const VERSION: u8 = 0xC5;
/// What a REFUSE's mac covers, bytes.
pub const REFUSE_COVERED: usize = 15;
const VERSIONS_MAX: usize = 8;

/// `0xC2 | version 4 | hello_id 8 | cookie 32`, 45 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The version of the HELLO.
    pub version: u32,
    /// The HELLO it answers.
    pub hello_id: u64,
    /// The cookie to return in the same HELLO.
    pub cookie: [u8; COOKIE_LEN],
}

impl Retry {
    /// Decodes a RETRY.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for another length or version.
    pub fn decode(datagram: &[u8]) -> Result<Self, Malformed> {
        let (version, mut reader) = start(datagram)?;
        let retry = Self {
            version,
            hello_id: reader.u64()?,
            cookie: reader.array()?,
        };
        end(&reader, retry)
    }

    /// Appends the 45 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(RETRY);
        writer.u32(self.version);
        writer.u64(self.hello_id);
        writer.bytes(&self.cookie);
    }
}

/// `0xC4 | version 4 | hello_id 8 | reason 2 | mac 16`, 31 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refuse {
    /// The version of the HELLO.
    pub version: u32,
    /// The HELLO it answers.
    pub hello_id: u64,
    /// The code, as in a CLOSE frame.
    pub reason: u16,
    /// Proves that the sender opened the token; without proof zero.
    pub mac: [u8; 16],
}

impl Refuse {
    /// Decodes a REFUSE.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for another length or version.
    pub fn decode(datagram: &[u8]) -> Result<Self, Malformed> {
        let (version, mut reader) = start(datagram)?;
        let refuse = Self {
            version,
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
        let [v0, v1, v2, v3] = self.version.to_be_bytes();
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
    named: [u32; VERSIONS_MAX],
    count: u8,
}

impl Versions {
    /// Decodes a VERSION.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for a count of 0 or over 8, or another length.
    pub fn decode(datagram: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(datagram);
        reader.u8()?;
        let hello_id = reader.u64()?;
        let count = reader.u8()?;
        let mut named = [0; VERSIONS_MAX];
        let places = named.get_mut(..usize::from(count)).ok_or(Malformed)?;
        if places.is_empty() {
            return Err(Malformed);
        }
        for place in places {
            *place = reader.u32()?;
        }
        let versions = Self {
            hello_id,
            named,
            count,
        };
        end(&reader, versions)
    }

    /// Returns the server's versions in its order.
    pub fn named(&self) -> &[u32] {
        self.named
            .get(..usize::from(self.count))
            .unwrap_or_default()
    }

    /// Appends the reply of a server that supports `versions`, of which it lists at most 8.
    pub fn encode(hello_id: u64, versions: &[u32], out: &mut Vec<u8>) {
        let versions = versions.get(..VERSIONS_MAX).unwrap_or(versions);
        let mut writer = Writer::new(out);
        writer.u8(VERSION);
        writer.u64(hello_id);
        writer.u8(u8::try_from(versions.len()).unwrap_or(0));
        for version in versions {
            writer.u32(*version);
        }
    }
}

/// Decodes the first byte, which the caller checked, and the version.
fn start(datagram: &[u8]) -> Result<(u32, Reader<'_>), Malformed> {
    let mut reader = Reader::new(datagram);
    reader.u8()?;
    let version = reader.u32()?;
    is_known(version)
        .then_some((version, reader))
        .ok_or(Malformed)
}

/// Rejects trailing bytes.
const fn end<T: Copy>(reader: &Reader<'_>, value: T) -> Result<T, Malformed> {
    if reader.is_empty() {
        Ok(value)
    } else {
        Err(Malformed)
    }
}

/// Lifetime of a cookie.
const VALIDITY: Duration = Duration::from_secs(10);
/// How long a key issues cookies; it verifies them for as long again.
const ROTATION: Duration = Duration::from_secs(30);
/// Domain separation from other uses of the key.
const LABEL: &[u8] = b"tw1 cookie";

/// Issues and verifies cookies. Its keys are never exposed.
#[derive(Debug)]
pub struct CookieJar {
    current: CookieKey,
    /// The previous key; `None` in the first epoch.
    previous: Option<CookieKey>,
    rotate_at: Instant,
}

#[derive(Debug)]
struct CookieKey {
    epoch: u8,
    key: Secret32,
}

impl CookieJar {
    /// Draws the first key.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the provider has none.
    pub fn new<P: Provider>(now: Instant, provider: &mut P) -> Result<Self, NoEntropy> {
        Ok(Self {
            current: CookieKey {
                epoch: 0,
                key: Secret32::random(provider)?,
            },
            previous: None,
            rotate_at: a_rotation_after(now),
        })
    }

    /// Returns a cookie for `sender` and its HELLO.
    pub fn issue<P: Provider>(
        &mut self,
        now: Instant,
        provider: &mut P,
        sender: SocketAddr,
        hello: &Hello0<'_>,
    ) -> [u8; COOKIE_LEN] {
        self.rotate(now, provider);
        let issued = seconds(now).to_be_bytes();
        let mac = mac(provider, &self.current, issued, sender, hello);
        concat(&[&[self.current.epoch, 0, 0, 0], &issued, &mac])
    }

    /// Returns whether `cookie` was issued here for this sender and HELLO within the last 10 s.
    pub fn is_valid<P: Provider>(
        &mut self,
        now: Instant,
        provider: &mut P,
        cookie: &[u8; COOKIE_LEN],
        (sender, hello): (SocketAddr, &Hello0<'_>),
    ) -> bool {
        self.rotate(now, provider);
        let mut reader = Reader::new(cookie);
        let (Ok([epoch, 0, 0, 0]), Ok(issued)) = (reader.array(), reader.array()) else {
            return false;
        };
        let age = seconds(now).checked_sub(u32::from_be_bytes(issued));
        if age.is_none_or(|age| u64::from(age) > VALIDITY.as_secs()) {
            return false;
        }
        let Some(key) = [Some(&self.current), self.previous.as_ref()]
            .into_iter()
            .flatten()
            .find(|key| key.epoch == epoch)
        else {
            return false;
        };
        let expected = mac(provider, key, issued, sender, hello);
        crypto::equal(&expected, reader.rest())
    }

    /// Rotates keys if due. Without entropy, the old key stays.
    fn rotate<P: Provider>(&mut self, now: Instant, provider: &mut P) {
        if now < self.rotate_at {
            return;
        }
        if let Ok(key) = Secret32::random(provider) {
            // Two rotations have passed, so cookies of the current key have expired.
            let is_stale = now >= a_rotation_after(self.rotate_at);
            let next = CookieKey {
                epoch: self.current.epoch.wrapping_add(1),
                key,
            };
            let retired = core::mem::replace(&mut self.current, next);
            self.previous = (!is_stale).then_some(retired);
            self.rotate_at = a_rotation_after(now);
        }
    }
}

fn a_rotation_after(at: Instant) -> Instant {
    at + ROTATION
}

fn mac<P: Provider>(
    provider: &P,
    key: &CookieKey,
    issued: [u8; 4],
    sender: SocketAddr,
    hello: &Hello0<'_>,
) -> [u8; 24] {
    let ip = mapped(sender.ip());
    let full = provider.hmac_sha256(
        key.key.expose(),
        &[
            LABEL,
            &ip.octets(),
            &sender.port().to_be_bytes(),
            &[key.epoch],
            &issued,
            hello.cookie_binding(),
        ],
    );
    full.first_chunk().copied().unwrap_or_default()
}

/// Whole seconds; 136 years fit.
fn seconds(now: Instant) -> u32 {
    u32::try_from(now.as_nanos() / 1_000_000_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{VERSION_1, VERSION_TRIAL};

    #[test]
    fn replies_round_trip() {
        let retry = Retry {
            version: VERSION_1,
            hello_id: 1,
            cookie: [2; COOKIE_LEN],
        };
        let refuse = Refuse {
            version: VERSION_TRIAL,
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
        let named = [VERSION_1, 7, VERSION_TRIAL, 9, 10, 11, 12, 13];
        for count in 1..=8 {
            out.clear();
            Versions::encode(5, &named[..count], &mut out);
            assert_eq!(out.len(), 10 + 4 * count);
            let versions = Versions::decode(&out).unwrap();
            assert_eq!((versions.hello_id, versions.named()), (5, &named[..count]));
        }
    }

    #[test]
    fn replies_of_another_length_are_refused() {
        let mut out = Vec::new();
        Versions::encode(5, &[VERSION_1], &mut out);
        out.push(0);
        assert_eq!(Versions::decode(&out), Err(Malformed));
        out.truncate(13);
        assert_eq!(Versions::decode(&out), Err(Malformed));
        assert_eq!(Retry::decode(&[RETRY; 45]), Err(Malformed));
    }
}
