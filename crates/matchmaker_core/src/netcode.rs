//! Connect tokens of netcode 1.02, for games on renet and lightyear.
//!
//! Layout: the standard's document, `STANDARD.md` of <https://github.com/mas-bandwidth/netcode>. Integers are
//! little-endian. The private part is sealed with XChaCha20-Poly1305.
//!
//! These tokens are weaker than [`crypto::token`]: all servers with a key open each other's tokens, and each of them
//! could make any. A token opens any server that it lists, and renet accepts it again from the same address. So a
//! token from here lists one address; give each server instance a key, and tokens a short lifetime.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use crypto::{NoEntropy, Provider};
use wire::{ClientId, UnixTime};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

const VERSION: &[u8; 13] = b"NETCODE 1.02\0";

/// The sealed part, with its authentication tag.
const PRIVATE_BYTES: usize = 1_024;

const TAG_BYTES: usize = 16;

const NONCE_BYTES: usize = 24;

/// A token of the standard.
const TOKEN_BYTES: usize = 2_048;

/// Data for the server in each token.
pub const USER_DATA_BYTES: usize = 256;

/// The longest lifetime of a token.
pub const LIFETIME_MAX: Duration = Duration::from_secs(300);

/// The secret that the matchmaker shares with game servers. It is wiped on drop.
#[derive(Clone)]
pub struct NetcodeKey([u8; 32]);

impl NetcodeKey {
    /// Accepts a key, unless all of its bytes are 0: several libraries have that as a default.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Option<Self> {
        (key != [0; 32]).then_some(Self(key))
    }

    /// Generates a key.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the provider's source of randomness fails.
    pub fn generate<P: Provider>(provider: &mut P) -> Result<Self, NoEntropy> {
        let mut key = Self([0; 32]);
        provider.random(&mut key.0)?;
        Ok(key)
    }

    /// Returns the key, for the server's configuration.
    pub const fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Drop for NetcodeKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for NetcodeKey {}

wire::opaque_debug!(NetcodeKey);

/// Which library reads the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// The standard, 2,048 bytes: lightyear, and the reference implementation. The address of IPv6 is eight
    /// little-endian words.
    Standard,
    /// `renet_netcode` 2.0: the client id before the token, and the address of IPv6 in network order.
    Renet,
}

/// Contents of a token.
#[derive(Clone, Debug)]
pub struct NetcodeRequest<'a> {
    /// Identifies the game and its version; the server has the same.
    pub protocol_id: u64,
    /// The player.
    pub client_id: ClientId,
    /// The only server that the client connects to.
    pub server: SocketAddr,
    /// When the token is made.
    pub issued_at: UnixTime,
    /// How long it can be used for a connect: 1 s to [`LIFETIME_MAX`], in whole seconds.
    pub lifetime: Duration,
    /// How long client and server wait for a packet before they disconnect: 1 s to an hour, in whole seconds.
    pub idle_timeout: Duration,
    /// Data for the server, at most [`USER_DATA_BYTES`]; the rest is filled with zeros.
    pub user_data: &'a [u8],
    /// Which library reads the token.
    pub dialect: Dialect,
}

/// A token with its session keys: for the player only, over TLS. It is wiped on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct NetcodeToken(Zeroizing<Vec<u8>>);

impl NetcodeToken {
    /// Returns the bytes that the client's library reads.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

wire::opaque_debug!(NetcodeToken);

/// Makes a token.
///
/// # Errors
///
/// [`NetcodeError`], if the request is out of range or no randomness is available.
pub fn mint<P: Provider>(
    provider: &mut P,
    key: &NetcodeKey,
    request: &NetcodeRequest<'_>,
) -> Result<NetcodeToken, NetcodeError> {
    let lifetime = check(request.lifetime, LIFETIME_MAX).ok_or(NetcodeError::Lifetime)?;
    let idle_timeout = check(request.idle_timeout, HOUR).ok_or(NetcodeError::IdleTimeout)?;
    if request.user_data.len() > USER_DATA_BYTES {
        return Err(NetcodeError::UserData(request.user_data.len()));
    }
    let server = request.server;
    if server.port() == 0 || server.ip().is_unspecified() {
        return Err(NetcodeError::Server(server));
    }
    let (mut nonce, mut session_keys) = ([0; NONCE_BYTES], Zeroizing::new([0; 64]));
    provider.random(&mut nonce)?;
    provider.random(&mut *session_keys)?;
    let issued_at = request.issued_at.as_secs();
    let expires_at = issued_at.saturating_add(lifetime.into());

    let mut private = Fields::with_capacity(PRIVATE_BYTES);
    private.put(&request.client_id.0.to_le_bytes());
    private.put(&idle_timeout.to_le_bytes());
    private.put_address(server, request.dialect);
    private.put(&*session_keys);
    private.put(request.user_data);
    let sealed_bytes = PRIVATE_BYTES.saturating_sub(TAG_BYTES);
    private.pad(sealed_bytes);
    let mut header = Vec::with_capacity(29);
    header.extend_from_slice(VERSION);
    header.extend_from_slice(&request.protocol_id.to_le_bytes());
    header.extend_from_slice(&expires_at.to_le_bytes());
    let cipher = XChaCha20Poly1305::new(&key.0.into());
    let tag = cipher
        .encrypt_inout_detached(
            &XNonce::from(nonce),
            &header,
            private.0.as_mut_slice().into(),
        )
        .map_err(|_| NetcodeError::Seal)?;

    let mut token = Fields::with_capacity(TOKEN_BYTES.saturating_add(8));
    let mut len = TOKEN_BYTES;
    if request.dialect == Dialect::Renet {
        token.put(&request.client_id.0.to_le_bytes());
        len = len.saturating_add(8);
    }
    token.put(VERSION);
    token.put(&request.protocol_id.to_le_bytes());
    token.put(&issued_at.to_le_bytes());
    token.put(&expires_at.to_le_bytes());
    token.put(&nonce);
    token.put(&private.0);
    token.put(&tag);
    token.put(&idle_timeout.to_le_bytes());
    token.put_address(server, request.dialect);
    token.put(&*session_keys);
    token.pad(len);
    Ok(NetcodeToken(token.0))
}

const HOUR: Duration = Duration::from_secs(3_600);

/// Returns whole seconds from 1 s to `max`.
fn check(span: Duration, max: Duration) -> Option<u32> {
    let is_whole = span.subsec_nanos() == 0;
    let is_valid = is_whole && span >= Duration::from_secs(1) && span <= max;
    is_valid.then(|| u32::try_from(span.as_secs()).ok())?
}

/// Secret bytes; the capacity is enough, so that no copy is left behind.
struct Fields(Zeroizing<Vec<u8>>);

impl Fields {
    fn with_capacity(capacity: usize) -> Self {
        Self(Zeroizing::new(Vec::with_capacity(capacity)))
    }

    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The number of addresses, type, address and port.
    fn put_address(&mut self, address: SocketAddr, dialect: Dialect) {
        self.put(&1_u32.to_le_bytes());
        match (address.ip(), dialect) {
            (IpAddr::V4(ip), _) => {
                self.put(&[1]);
                self.put(&ip.octets());
            }
            (IpAddr::V6(ip), Dialect::Standard) => {
                self.put(&[2]);
                for word in ip.segments() {
                    self.put(&word.to_le_bytes());
                }
            }
            (IpAddr::V6(ip), Dialect::Renet) => {
                self.put(&[2]);
                self.put(&ip.octets());
            }
        }
        self.put(&address.port().to_le_bytes());
    }

    fn pad(&mut self, len: usize) {
        self.0.resize(len, 0);
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fields").finish_non_exhaustive()
    }
}

/// Why no token was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetcodeError {
    /// The lifetime is not 1 to 300 whole seconds.
    Lifetime,
    /// The idle timeout is not 1 to 3,600 whole seconds.
    IdleTimeout,
    /// The user data has this many bytes.
    UserData(usize),
    /// Nobody can connect to this address.
    Server(SocketAddr),
    /// The source of randomness failed.
    NoEntropy,
    /// The cipher refused the data.
    Seal,
}

impl From<NoEntropy> for NetcodeError {
    fn from(_: NoEntropy) -> Self {
        Self::NoEntropy
    }
}

wire::error_text! { NetcodeError {
    Self::Lifetime => "the lifetime of a token is 1 to 300 whole seconds",
    Self::IdleTimeout => "the idle timeout of a token is 1 to 3,600 whole seconds",
    Self::UserData(len) => "{len} bytes of user data, at most {USER_DATA_BYTES} are allowed",
    Self::Server(address) => "{address} is no address to connect to",
    Self::NoEntropy => "the source of randomness failed",
    Self::Seal => "the cipher refused the data",
}}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::Ring;

    const KEY: [u8; 32] = [7; 32];

    fn request(server: &str, dialect: Dialect) -> NetcodeRequest<'static> {
        NetcodeRequest {
            protocol_id: 0x1122_3344_5566_7788,
            client_id: ClientId(42),
            server: server.parse().unwrap(),
            issued_at: UnixTime::from_secs(1_800_000_000),
            lifetime: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(5),
            user_data: b"seat 3",
            dialect,
        }
    }

    fn token(request: &NetcodeRequest<'_>) -> Vec<u8> {
        let key = NetcodeKey::new(KEY).unwrap();
        mint(&mut Ring::new(), &key, request)
            .unwrap()
            .expose()
            .to_vec()
    }

    /// Opens the private part of a token of the standard, with the header bytes that a server knows.
    fn open(token: &[u8], key: [u8; 32]) -> Option<Vec<u8>> {
        let mut header = token[..21].to_vec();
        header.extend_from_slice(&token[29..37]);
        let nonce: [u8; NONCE_BYTES] = token[37..61].try_into().unwrap();
        let (private, rest) = token[61..].split_at(PRIVATE_BYTES - TAG_BYTES);
        let tag: [u8; TAG_BYTES] = rest[..TAG_BYTES].try_into().unwrap();
        let mut private = private.to_vec();
        XChaCha20Poly1305::new(&key.into())
            .decrypt_inout_detached(
                &XNonce::from(nonce),
                &header,
                private.as_mut_slice().into(),
                &tag.into(),
            )
            .ok()?;
        Some(private)
    }

    #[test]
    fn bg6_a_netcode_token_has_the_layout_of_the_standard() {
        let token = token(&request("192.0.2.7:40000", Dialect::Standard));
        assert_eq!(token.len(), 2_048);
        assert_eq!(&token[..13], VERSION);
        assert_eq!(token[13..21], 0x1122_3344_5566_7788_u64.to_le_bytes());
        assert_eq!(token[21..29], 1_800_000_000_u64.to_le_bytes());
        assert_eq!(token[29..37], 1_800_000_030_u64.to_le_bytes());
        let public = &token[61 + PRIVATE_BYTES..];
        let address = [1, 0, 0, 0, 1, 192, 0, 2, 7, 0x40, 0x9c];
        assert_eq!(public[..4], 5_u32.to_le_bytes());
        assert_eq!(public[4..15], address);
        let private = open(&token, KEY).unwrap();
        assert_eq!(private[..8], 42_u64.to_le_bytes());
        assert_eq!(private[8..12], 5_u32.to_le_bytes());
        assert_eq!(private[12..23], address);
        assert_eq!(
            private[23..87],
            public[15..79],
            "both have the session keys"
        );
        assert_eq!(&private[87..93], b"seat 3");
        assert!(private[93..].iter().all(|byte| *byte == 0));
        assert!(public[79..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn bg6_a_changed_token_or_another_key_opens_nothing() {
        let token = token(&request("192.0.2.7:40000", Dialect::Standard));
        assert_eq!(open(&token, [8; 32]), None);
        // Creation time, and what follows the private part, are not authenticated by the standard.
        for bit in (0..21 * 8).chain(29 * 8..(61 + PRIVATE_BYTES) * 8) {
            let mut changed = token.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&changed, KEY), None, "bit {bit}");
        }
    }

    #[test]
    fn dialects_differ_in_the_client_id_and_in_ipv6() {
        let standard = token(&request("[2001:db8::1]:40000", Dialect::Standard));
        let renet = token(&request("[2001:db8::1]:40000", Dialect::Renet));
        assert_eq!((standard.len(), renet.len()), (2_048, 2_056));
        assert_eq!(renet[..8], 42_u64.to_le_bytes());
        let of = |token: &[u8]| token[61 + PRIVATE_BYTES + 8..][..19].to_vec();
        let (standard, renet) = (of(&standard), of(&renet[8..]));
        assert_eq!(standard[..5], [2, 0x01, 0x20, 0xb8, 0x0d]);
        assert_eq!(renet[..5], [2, 0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!(standard[15..], [0x01, 0x00, 0x40, 0x9c]);
        assert_eq!(renet[15..], [0x00, 0x01, 0x40, 0x9c]);
    }

    #[test]
    fn a_request_out_of_range_is_refused() {
        let refused = |change: fn(&mut NetcodeRequest<'_>)| {
            let mut request = request("192.0.2.7:40000", Dialect::Standard);
            change(&mut request);
            let key = NetcodeKey::new(KEY).unwrap();
            mint(&mut Ring::new(), &key, &request).unwrap_err()
        };
        let secs = Duration::from_secs;
        assert_eq!(secs(301), LIFETIME_MAX + secs(1));
        assert_eq!(
            refused(|it| it.lifetime = Duration::ZERO),
            NetcodeError::Lifetime
        );
        assert_eq!(
            refused(|it| it.lifetime = Duration::from_secs(301)),
            NetcodeError::Lifetime
        );
        assert_eq!(
            refused(|it| it.lifetime = Duration::from_millis(1_500)),
            NetcodeError::Lifetime
        );
        assert_eq!(
            refused(|it| it.idle_timeout = Duration::from_secs(3_601)),
            NetcodeError::IdleTimeout
        );
        assert_eq!(
            refused(|it| it.user_data = &[1; 257]),
            NetcodeError::UserData(257)
        );
        let nowhere = "0.0.0.0:40000".parse().unwrap();
        assert_eq!(
            refused(|it| it.server.set_ip("0.0.0.0".parse().unwrap())),
            NetcodeError::Server(nowhere)
        );
        assert!(matches!(
            refused(|it| it.server.set_port(0)),
            NetcodeError::Server(_)
        ));
        assert!(
            NetcodeKey::new([0; 32]).is_none(),
            "the default of several libraries"
        );
    }

    #[test]
    fn bg17_netcode_secrets_are_not_printed() {
        let key = NetcodeKey::new(KEY).unwrap();
        let token = mint(
            &mut Ring::new(),
            &key,
            &request("192.0.2.7:1", Dialect::Renet),
        );
        assert_eq!(
            format!("{key:?} {:?}", token.unwrap()),
            "NetcodeKey(..) NetcodeToken(..)"
        );
    }
}
