//! HELLO: the client's first datagram, 1,200 bytes.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | 0xC1 |
//! | 1 | 4 | version that lays out this HELLO |
//! | 5 | 4 | highest version the client speaks |
//! | 9 | 8 | application id |
//! | 17 | 8 | hello id, random for each attempt |
//! | 25 | 2 | suites, a bitmap |
//! | 27 | 1 | length of the client's connection id, 0 to 8 |
//! | 28 | 8 | the client's connection id, padded with zeros |
//! | 36 | 65 | client's ephemeral key |
//! | 101 | 1 | cookie length, 0 or 32 |
//! | 102 | 32 | cookie, zero when absent |
//! | 134 | 16 | PSK mac |
//! | 150 | 2 | token length, 0 to 1,000 |
//! | 152 | n | token |
//! | 152 + n | | zeros to 1,200 |

use crypto::PublicKey;
use wire::{Reader, Truncated, Writer};

use super::{Mode, is_known, read_cid, write_cid};
use crate::packet::Cid;

/// First byte of a HELLO.
pub const FIRST_BYTE: u8 = 0xC1;
/// Length of a HELLO in bytes. No reply is longer, and every path must carry it (RFC 9000, section
/// 14).
pub const LEN: usize = 1_200;
/// Longest sealed token, bytes.
pub const TOKEN_LEN_MAX: usize = 1_000;
/// Length of a cookie, bytes.
pub const COOKIE_LEN: usize = 32;
/// Offset of the cookie's length byte.
const COOKIE_OFFSET: usize = 101;
/// Offset of the PSK mac, which covers everything before it and the token.
const MAC_OFFSET: usize = 134;
/// Offset of the token's length.
const TOKEN_OFFSET: usize = 150;

/// A decoded HELLO that borrows its datagram.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a> {
    /// Version of this HELLO's layout.
    pub version: u32,
    /// Highest version that the client supports.
    pub version_max: u32,
    /// Identifies game and build.
    pub app_id: u64,
    /// Random for each attempt; every reply echoes it.
    pub hello_id: u64,
    /// Bitmap: suite `n + 1` is offered if bit `n` is set.
    pub suites: u16,
    /// The connection id that packets to the client carry.
    pub client_cid: Cid,
    /// The client's ephemeral key.
    pub client_ephemeral: PublicKey,
    /// The cookie of a RETRY.
    pub cookie: Option<[u8; COOKIE_LEN]>,
    /// Proof that the sender holds the PSK; zero in open mode.
    pub psk_mac: [u8; 16],
    /// The sealed connect token; empty without one.
    pub token: &'a [u8],
}

/// The fields of a HELLO that every version has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// Version of the remaining layout.
    pub version: u32,
    /// Highest version that the client supports.
    pub version_max: u32,
    /// Identifies game and build.
    pub app_id: u64,
    /// Random for each attempt.
    pub hello_id: u64,
}

/// Why a datagram is not a HELLO of version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HelloError {
    /// Its length is not 1,200 bytes.
    Length,
    /// Its version is unknown.
    Version,
    /// A field is out of range, or padding is not zero.
    Range,
}

impl From<Truncated> for HelloError {
    fn from(_: Truncated) -> Self {
        Self::Length
    }
}

impl Preamble {
    /// Decodes the fields that every version has.
    ///
    /// # Errors
    ///
    /// [`HelloError::Length`] if the datagram does not have the length of a HELLO.
    pub fn decode(datagram: &[u8]) -> Result<Self, HelloError> {
        if datagram.len() != LEN {
            return Err(HelloError::Length);
        }
        let mut reader = Reader::new(datagram);
        reader.u8()?;
        Ok(Self {
            version: reader.u32()?,
            version_max: reader.u32()?,
            app_id: reader.u64()?,
            hello_id: reader.u64()?,
        })
    }
}

impl<'a> Hello<'a> {
    /// Decodes a HELLO. Unused bytes must be zero, so that the PSK mac fixes every byte outside the
    /// cookie.
    ///
    /// # Errors
    ///
    /// [`HelloError`] for another length, another version, or a field out of range.
    pub fn decode(datagram: &'a [u8]) -> Result<Self, HelloError> {
        let preamble = Preamble::decode(datagram)?;
        if !is_known(preamble.version) {
            return Err(HelloError::Version);
        }
        let mut reader = Reader::new(datagram);
        reader.bytes(25)?;
        let suites = reader.u16()?;
        let client_cid = read_cid(&mut reader)?.ok_or(HelloError::Range)?;
        let client_ephemeral: [u8; 65] = reader.array()?;
        let cookie_len = reader.u8()?;
        let cookie: [u8; COOKIE_LEN] = reader.array()?;
        let psk_mac = reader.array()?;
        let token_len = usize::from(reader.u16()?);
        if token_len > TOKEN_LEN_MAX {
            return Err(HelloError::Range);
        }
        let token = reader.bytes(token_len)?;

        let cookie_fits = match usize::from(cookie_len) {
            0 => cookie == [0; COOKIE_LEN],
            COOKIE_LEN => true,
            _ => false,
        };
        let in_range = cookie_fits
            && suites & 1 == 1
            && preamble.version_max >= preamble.version
            && matches!(client_ephemeral, [4, ..])
            && is_zero(reader.take_rest());
        if !in_range {
            return Err(HelloError::Range);
        }
        Ok(Self {
            version: preamble.version,
            version_max: preamble.version_max,
            app_id: preamble.app_id,
            hello_id: preamble.hello_id,
            suites,
            client_cid,
            client_ephemeral: PublicKey(client_ephemeral),
            cookie: (cookie_len != 0).then_some(cookie),
            psk_mac,
            token,
        })
    }

    /// Appends the 1,200 bytes to `out`. Truncates a token longer than [`TOKEN_LEN_MAX`] bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let token = self.token.get(..TOKEN_LEN_MAX).unwrap_or(self.token);
        let mut writer = Writer::new(out);
        writer.u8(FIRST_BYTE);
        writer.u32(self.version);
        writer.u32(self.version_max);
        writer.u64(self.app_id);
        writer.u64(self.hello_id);
        writer.u16(self.suites);
        write_cid(&mut writer, self.client_cid);
        writer.bytes(&self.client_ephemeral.0);
        writer.u8(if self.cookie.is_some() { 32 } else { 0 });
        writer.bytes(&self.cookie.unwrap_or_default());
        writer.bytes(&self.psk_mac);
        writer.u16(u16::try_from(token.len()).unwrap_or(0));
        writer.bytes(token);
        writer.zeros(LEN.saturating_sub(writer.position().saturating_sub(start)));
    }

    /// Returns the requested mode.
    pub fn mode(&self) -> Mode {
        if !self.token.is_empty() {
            Mode::Token
        } else if self.psk_mac == [0; 16] {
            Mode::Open
        } else {
            Mode::Peer
        }
    }
}

/// The parts of an encoded HELLO that hashes and macs cover: HELLO0, with a zero cookie.
#[derive(Clone, Copy, Debug)]
pub struct Hello0<'a> {
    before_cookie: &'a [u8],
    after_cookie: &'a [u8],
}

const NO_COOKIE: [u8; 33] = [0; 33];

impl<'a> Hello0<'a> {
    /// Splits a datagram; `None` if it is not 1,200 bytes long.
    pub fn new(datagram: &'a [u8]) -> Option<Self> {
        if datagram.len() != LEN {
            return None;
        }
        Some(Self {
            before_cookie: datagram.get(..COOKIE_OFFSET)?,
            after_cookie: datagram.get(MAC_OFFSET..)?,
        })
    }

    /// Returns HELLO0 in three parts, without a copy.
    pub const fn parts(&self) -> [&'a [u8]; 3] {
        [self.before_cookie, &NO_COOKIE, self.after_cookie]
    }

    /// Returns the parts that the PSK mac covers: HELLO0 up to the mac, the token's length, the
    /// token.
    pub fn mac_parts(&self) -> [&'a [u8]; 3] {
        let skipped = TOKEN_OFFSET.saturating_sub(MAC_OFFSET);
        let tail = self.after_cookie.get(skipped..).unwrap_or_default();
        let token_len = match tail {
            [high, low, ..] => usize::from(u16::from_be_bytes([*high, *low])),
            _ => 0,
        };
        let covered = tail.get(..token_len.saturating_add(2)).unwrap_or(tail);
        [self.before_cookie, &NO_COOKIE, covered]
    }

    /// Returns the bytes that a cookie is bound to: from the version to the ephemeral key.
    pub fn cookie_binding(&self) -> &'a [u8] {
        self.before_cookie.get(1..).unwrap_or_default()
    }
}

/// Writes `cookie` into an encoded HELLO.
pub fn set_cookie(hello: &mut [u8], cookie: &[u8; COOKIE_LEN]) {
    if let Some([len, field @ ..]) = hello.get_mut(COOKIE_OFFSET..MAC_OFFSET) {
        *len = 32;
        field.copy_from_slice(cookie);
    }
}

/// Removes the cookie from an encoded HELLO.
pub fn clear_cookie(hello: &mut [u8]) {
    if let Some(field) = hello.get_mut(COOKIE_OFFSET..MAC_OFFSET) {
        field.fill(0);
    }
}

/// Writes the PSK mac into an encoded HELLO.
pub fn set_psk_mac(hello: &mut [u8], mac: &[u8; 16]) {
    if let Some(field) = hello.get_mut(MAC_OFFSET..TOKEN_OFFSET) {
        field.copy_from_slice(mac);
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |any, byte| any | byte) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::VERSION_1;
    use proptest::prelude::*;

    fn sample(token: &[u8]) -> Hello<'_> {
        let mut key = [7; 65];
        key[0] = 4;
        Hello {
            version: VERSION_1,
            version_max: VERSION_1,
            app_id: 5,
            hello_id: 6,
            suites: 3,
            client_cid: Cid::from_slice(&[1, 2, 3, 4]).unwrap(),
            client_ephemeral: PublicKey(key),
            cookie: Some([9; 32]),
            psk_mac: [8; 16],
            token,
        }
    }

    fn encoded(hello: &Hello<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        hello.encode(&mut out);
        out
    }

    #[test]
    fn is_read_as_it_is_written() {
        for token_len in [0, 143, 788, 1_000] {
            let token = vec![1; token_len];
            let bytes = encoded(&sample(&token));
            assert_eq!(bytes.len(), LEN);
            let hello = Hello::decode(&bytes).unwrap();
            assert_eq!(encoded(&hello), bytes);
        }
    }

    #[test]
    fn a_byte_of_padding_is_refused() {
        let bytes = encoded(&sample(&[1; 100]));
        for index in (252..LEN).chain(32..36) {
            let mut bytes = bytes.clone();
            bytes[index] = 1;
            assert_eq!(Hello::decode(&bytes).unwrap_err(), HelloError::Range);
        }
    }

    #[test]
    fn fields_out_of_range_are_refused() {
        let bytes = encoded(&sample(&[1; 100]));
        for (index, value) in [(26, 2), (27, 9), (36, 3), (101, 31), (150, 4), (8, 0)] {
            let mut bytes = bytes.clone();
            bytes[index] = value;
            assert_eq!(
                Hello::decode(&bytes).unwrap_err(),
                HelloError::Range,
                "{index}"
            );
        }
    }

    #[test]
    fn hello0_does_not_depend_on_the_cookie() {
        let mut bytes = encoded(&sample(&[1; 100]));
        let before = Hello0::new(&bytes).unwrap().parts().concat();
        set_cookie(&mut bytes, &[0xAA; 32]);
        let after = Hello0::new(&bytes).unwrap().parts().concat();
        assert_eq!(before.len(), LEN);
        assert_eq!(before, after);
        assert_eq!(&before[101..134], &[0; 33]);
    }

    #[test]
    fn the_mac_covers_all_but_cookie_itself_and_padding() {
        let bytes = encoded(&sample(&[1; 100]));
        let covered = Hello0::new(&bytes).unwrap().mac_parts().concat();
        let expected = [&bytes[..101], &[0; 33], &100_u16.to_be_bytes(), &[1; 100]].concat();
        assert_eq!(covered, expected);
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_value_or_an_error(mut bytes in proptest::collection::vec(any::<u8>(), LEN)) {
            let _unused = Hello::decode(&bytes);
            bytes[1..5].copy_from_slice(&VERSION_1.to_be_bytes());
            if let Ok(hello) = Hello::decode(&bytes) {
                prop_assert_eq!(encoded(&hello), bytes);
            }
        }
    }
}
