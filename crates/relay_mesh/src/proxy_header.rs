//! PROXY protocol headers, versions 1 and 2: they name the source of a connection, flow or datagram
//! to a server.
//!
//! W. Tarreau, "The PROXY protocol, versions 1 and 2", of 2020-03-05, is "the specification" in
//! this module. Version 1 is a line of text, for streams only (section 2.1). Version 2 is binary
//! (section 2.2) and can have extensions in type-length-value format.
//!
//! - [`read`] parses the start of a stream and [`read_datagram`] a datagram; neither copies, or
//!   reads a
//!   byte after the header.
//! - [`write_line`] and [`write_block`] append to a buffer, and allocate nothing if it has
//!   capacity.
//! - [`TrustedProxies`] defines which senders' headers are accepted. The protocol has no
//!   authentication.
//!
//! ```
//! use relay_mesh::proxy_header::{Found, LEN_USUAL, HeaderPolicy, TrustedProxies, read};
//!
//! let trusted = TrustedProxies::parse(["10.0.0.0/8", "2001:db8::/32"], HeaderPolicy::Required)?;
//! let stream = b"PROXY TCP4 203.0.113.9 10.0.0.2 4000 443\r\nGET / HTTP/1.1\r\n";
//! let Found::Header(header) = read(stream, LEN_USUAL)? else {
//!     panic!("there is one");
//! };
//! let ends = trusted.judge("10.0.0.1".parse()?, Some(&header))?.expect("of a player");
//! assert_eq!(ends.source, "203.0.113.9:4000".parse()?);
//! assert!(stream[header.len..].starts_with(b"GET"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block;
mod header;
mod line;
mod read;
mod trust;
mod write;

pub use header::BadHeader;
pub use header::{Ends, Header, Subject, Transport, Version};
pub use header::{Tlv, TlvKind, Tlvs, UNIQUE_ID_MAX};
pub use line::{LINE_MAX, write_line};
pub use read::{Found, HeaderStart, LEN_USUAL, header_start, read, read_datagram};
pub use trust::{HeaderPolicy, PREFIXES_MAX, PolicyViolation, TrustError, TrustedProxies};
pub use write::{BLOCK_MAX, Checksum, WriteError, write_block};

/// Signature of version 2; the specification, section 2.2.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Returns whether `bytes` start with the signature of version 2.
pub(crate) fn is_like(bytes: &[u8]) -> bool {
    bytes.starts_with(&SIGNATURE)
}

#[cfg(test)]
mod tests;
