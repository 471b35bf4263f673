//! ACCEPT: the server's answer that establishes a session.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | 0xC3 |
//! | 1 | 4 | version |
//! | 5 | 8 | hello id |
//! | 13 | 1 | suite chosen |
//! | 14 | 1 | length of the server's connection id, 4 or 8 |
//! | 15 | 8 | the server's connection id, padded with zeros |
//! | 23 | 65 | server's ephemeral key |
//! | 88 | 2 | length of the rest |
//! | 90 | | sealed: identity form 1, identity 0, 65 or 145, params 40, signature 64, tag 16 |

use crypto::{Certificate, PublicKey, Suite};
use wire::codec::concat;
use wire::{Reader, Writer};

use super::{Malformed, is_known, params, read_cid, write_cid};
use crate::packet::Cid;

/// First byte of an ACCEPT.
pub const FIRST_BYTE: u8 = 0xC3;
/// Length of the clear part, which the key and tag of the sealed part cover.
pub const CLEAR_LEN: usize = 90;
/// Length of an AEAD tag.
pub const TAG_LEN: usize = 16;
/// Prefix of the signed message.
const SIGNATURE_LABEL: &[u8] = b"tw1 accept signature";

/// The clear part of an ACCEPT.
#[derive(Clone, Copy, Debug)]
pub struct AcceptClear {
    /// The version of the HELLO.
    pub version: u32,
    /// The HELLO it answers.
    pub hello_id: u64,
    /// The chosen suite.
    pub suite: Suite,
    /// The connection id that packets to the server carry.
    pub server_cid: Cid,
    /// The server's ephemeral key.
    pub server_ephemeral: PublicKey,
    /// Length of the sealed part in bytes.
    pub sealed_len: u16,
}

impl AcceptClear {
    /// Decodes the clear part. The datagram must end with the sealed part.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for another version, an unknown suite, or a wrong length.
    pub fn decode(datagram: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(datagram);
        reader.u8()?;
        let version = reader.u32()?;
        if !is_known(version) {
            return Err(Malformed);
        }
        let hello_id = reader.u64()?;
        let suite = Suite::from_code(reader.u8()?).ok_or(Malformed)?;
        let server_cid = read_cid(&mut reader)?.ok_or(Malformed)?;
        let server_ephemeral = PublicKey(reader.array()?);
        let sealed_len = reader.u16()?;
        if !matches!(server_cid.len(), 4 | 8) || reader.len() != usize::from(sealed_len) {
            return Err(Malformed);
        }
        Ok(Self {
            version,
            hello_id,
            suite,
            server_cid,
            server_ephemeral,
            sealed_len,
        })
    }

    /// Appends the 90 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(FIRST_BYTE);
        writer.u32(self.version);
        writer.u64(self.hello_id);
        writer.u8(self.suite.code());
        write_cid(&mut writer, self.server_cid);
        writer.bytes(&self.server_ephemeral.0);
        writer.u16(self.sealed_len);
    }
}

/// How an ACCEPT identifies the server's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityForm {
    /// Form 0: not at all, since the client has the key.
    Pinned,
    /// Form 1: with a certificate of a root key, which the client has.
    Certified(Certificate),
    /// Form 2: the whole key, since the client has only its hash.
    RawKey(PublicKey),
}

impl IdentityForm {
    /// Returns the form's code.
    pub const fn code(&self) -> u8 {
        match self {
            Self::Pinned => 0,
            Self::Certified(_) => 1,
            Self::RawKey(_) => 2,
        }
    }

    /// Returns the encoded identity.
    pub const fn bytes(&self) -> &[u8] {
        match self {
            Self::Pinned => &[],
            Self::Certified(certificate) => certificate.as_bytes(),
            Self::RawKey(key) => &key.0,
        }
    }

    /// Returns the length of the sealed part with this form, with tag.
    pub const fn sealed_len(&self) -> u16 {
        match self {
            Self::Pinned => 121,
            Self::Certified(_) => 266,
            Self::RawKey(_) => 186,
        }
    }
}

/// The sealed part of an ACCEPT.
#[derive(Clone, Copy, Debug)]
pub struct AcceptBody {
    /// The signing key.
    pub identity: IdentityForm,
    /// The server's encoded parameters.
    pub params: [u8; params::LEN],
    /// Signature of the server's identity key over the transcript.
    pub signature: [u8; 64],
}

impl AcceptBody {
    /// Decodes the decrypted part, without its tag.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for an unknown form or a wrong length.
    pub fn decode(opened: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(opened);
        let identity = match reader.u8()? {
            0 => IdentityForm::Pinned,
            1 => {
                let certificate = Certificate::parse(&reader.array()?).ok_or(Malformed)?;
                IdentityForm::Certified(certificate)
            }
            2 => IdentityForm::RawKey(PublicKey(reader.array()?)),
            _ => return Err(Malformed),
        };
        let body = Self {
            identity,
            params: reader.array()?,
            signature: reader.array()?,
        };
        if reader.is_empty() {
            Ok(body)
        } else {
            Err(Malformed)
        }
    }

    /// Appends the plaintext, without the tag.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.u8(self.identity.code());
        writer.bytes(self.identity.bytes());
        writer.bytes(&self.params);
        writer.bytes(&self.signature);
    }
}

/// Returns the signed message: a label, then `transcript`, the SHA-256 over [`signed_parts`].
pub fn signed_message(transcript: &[u8; 32]) -> [u8; 52] {
    concat(&[SIGNATURE_LABEL, transcript])
}

/// Returns the parts that the signed transcript hash covers: HELLO0, the clear ACCEPT, identity,
/// parameters.
pub const fn signed_parts<'a>(
    hello0: [&'a [u8]; 3],
    clear: &'a [u8],
    form: &'a [u8; 1],
    identity: &'a IdentityForm,
    params: &'a [u8; params::LEN],
) -> [&'a [u8]; 7] {
    let [a, b, c] = hello0;
    [a, b, c, clear, form, identity.bytes(), params]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_read_as_it_is_written() {
        for (identity, total) in [
            (IdentityForm::Pinned, 211),
            (
                IdentityForm::Certified(Certificate::parse(&[1; 145]).unwrap()),
                356,
            ),
            (IdentityForm::RawKey(PublicKey([4; 65])), 276),
        ] {
            let clear = AcceptClear {
                version: crate::config::VERSION_1,
                hello_id: 1,
                suite: Suite::Aes128Gcm,
                server_cid: Cid::from_slice(&[1, 2, 3, 4]).unwrap(),
                server_ephemeral: PublicKey([4; 65]),
                sealed_len: identity.sealed_len(),
            };
            let body = AcceptBody {
                identity,
                params: [5; params::LEN],
                signature: [6; 64],
            };
            let mut out = Vec::new();
            clear.encode(&mut out);
            assert_eq!(out.len(), CLEAR_LEN);
            body.encode(&mut out);
            let opened = AcceptBody::decode(&out[CLEAR_LEN..]).unwrap();
            assert_eq!(
                (opened.identity, opened.params),
                (body.identity, body.params)
            );
            out.resize(out.len() + TAG_LEN, 0);
            assert_eq!(out.len(), total);
            let read = AcceptClear::decode(&out).unwrap();
            assert_eq!(read.server_cid, clear.server_cid);
            assert!(AcceptClear::decode(&out[..total - 1]).is_err());
        }
    }

    #[test]
    fn an_unknown_form_or_version_of_a_certificate_is_refused() {
        assert!(AcceptBody::decode(&[1; 250]).is_ok());
        let mut body = [1; 250];
        body[1] = 2;
        assert!(AcceptBody::decode(&body).is_err());
        assert!(AcceptBody::decode(&[3; 250]).is_err());
    }
}
