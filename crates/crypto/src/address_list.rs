//! One to eight socket addresses, for tokens and grants.

use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use wire::address::mapped;
use wire::{Reader, Writer};

/// One to eight addresses of a server, best first.
///
/// Encoded as a count of 1 byte and 19 bytes each: family 4 or 6, 16 bytes of address (IPv4 mapped,
/// RFC 4291, section 2.5.5.2), port 2. Flow labels and scopes are not encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressList(Vec<SocketAddr>);

impl AddressList {
    /// Maximum number of addresses.
    pub const MAX: usize = 8;

    /// Creates the list.
    ///
    /// # Errors
    ///
    /// [`AddressCount`] if there is none, or more than eight.
    pub fn new(addresses: &[SocketAddr]) -> Result<Self, AddressCount> {
        if addresses.is_empty() || addresses.len() > Self::MAX {
            return Err(AddressCount(addresses.len()));
        }
        let plain = |address: &SocketAddr| SocketAddr::new(address.ip(), address.port());
        Ok(Self(addresses.iter().map(plain).collect()))
    }

    /// Returns the addresses, best first; never empty.
    #[must_use]
    pub fn as_slice(&self) -> &[SocketAddr] {
        &self.0
    }

    /// Appends the list.
    pub fn encode(&self, out: &mut Writer<'_>) {
        let [.., count] = self.0.len().to_be_bytes();
        out.u8(count);
        for address in &self.0 {
            out.u8(if address.is_ipv4() { 4 } else { 6 });
            out.bytes(&mapped(address.ip()).octets());
            out.u16(address.port());
        }
    }

    /// Decodes a list; `None` if count, family or an IPv4 mapping is wrong, or bytes are missing.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let count = usize::from(reader.u8().ok()?);
        if count == 0 || count > Self::MAX {
            return None;
        }
        let one = |reader: &mut Reader<'_>| {
            let family = reader.u8().ok()?;
            let ip = Ipv6Addr::from(reader.array::<16>().ok()?);
            let ip = match family {
                4 => IpAddr::V4(ip.to_ipv4_mapped()?),
                6 => IpAddr::V6(ip),
                _ => return None,
            };
            Some(SocketAddr::new(ip, reader.u16().ok()?))
        };
        (0..count)
            .map(|_| one(reader))
            .collect::<Option<_>>()
            .map(Self)
    }
}

/// The number of addresses is zero or more than eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressCount(pub usize);

impl fmt::Display for AddressCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count) = self;
        write!(
            f,
            "{count} addresses, where 1 to {} are allowed",
            AddressList::MAX
        )
    }
}

impl core::error::Error for AddressCount {}
