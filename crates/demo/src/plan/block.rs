//! The loopback addresses of a run.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

/// The 254 loopback addresses 127.a.b.1 to .254. One run uses a block alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    a: u8,
    b: u8,
}

impl Block {
    /// Claims a block that no other run holds, until the claim is dropped.
    ///
    /// # Errors
    ///
    /// An I/O error if loopback has only one address, or if all blocks that were tried are taken.
    pub fn claim() -> io::Result<Claim> {
        let [.., a, b] = std::process::id().to_be_bytes();
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for step in 0..BLOCKS_TRIED {
            // Skips the first 64: resolvers often listen at 127.0.x.y.
            let block = Self {
                a: (a % 128).saturating_add(64),
                b: b.wrapping_add(step),
            };
            match UdpSocket::bind(block.address(CLAIM, CLAIM_PORT)) {
                Ok(socket) => {
                    return Ok(Claim {
                        block,
                        _socket: socket,
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Returns one address of the block.
    pub(super) const fn address(self, host: u8, port: u16) -> SocketAddr {
        SocketAddr::new(self.host(host), port)
    }

    pub(super) const fn host(self, host: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(127, self.a, self.b, host))
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "127.{}.{}", self.a, self.b)
    }
}

impl FromStr for Block {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (a, b) = text.strip_prefix("127.")?.split_once('.')?;
            Some(Self {
                a: a.parse().ok()?,
                b: b.parse().ok()?,
            })
        };
        parse().ok_or_else(|| format!("`{text}` is not of the form 127.A.B"))
    }
}

/// A claimed block.
#[derive(Debug)]
pub struct Claim {
    block: Block,
    /// Holds the claim.
    _socket: UdpSocket,
}

impl Claim {
    /// Returns the block.
    #[must_use]
    pub const fn block(&self) -> Block {
        self.block
    }
}

/// The host with the socket that marks a block as claimed.
const CLAIM: u8 = 1;
const CLAIM_PORT: u16 = 27_700;
/// Blocks that are tried.
const BLOCKS_TRIED: u8 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_share_no_block() {
        let (one, other) = (Block::claim().unwrap(), Block::claim().unwrap());
        assert_ne!(one.block(), other.block());
        assert_eq!(one.block().to_string().parse(), Ok(one.block()));
        assert!("10.1.2".parse::<Block>().is_err());
    }
}
