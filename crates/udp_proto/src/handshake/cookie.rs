//! Cookies: stateless proof that a sender receives at its address.
//!
//! `epoch 1 | 0 0 0 | issued 4 | mac 24`: `issued` is in seconds of the server's monotonic clock.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use crypto::{NoEntropy, Provider, Secret32};
use wire::{Instant, Reader};

use super::hello::{COOKIE_LEN, Hello0};

/// Lifetime of a cookie.
const VALIDITY: Duration = Duration::from_secs(10);
/// How long a key issues cookies; it verifies them for as long again.
const ROTATION: Duration = Duration::from_secs(30);
/// Domain separation from other uses of the key.
const LABEL: &[u8] = b"tw1 cookie";

/// Issues and verifies cookies. Its keys are never exposed.
#[derive(Debug)]
pub struct CookieJar {
    /// Issues cookies.
    current: CookieKey,
    /// The previous key; `None` in the first epoch.
    previous: Option<CookieKey>,
    /// When `current` is replaced.
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
        let mut cookie = [0; COOKIE_LEN];
        let (head, tail) = cookie.split_at_mut(8);
        let [a, b, c, d] = issued;
        head.copy_from_slice(&[self.current.epoch, 0, 0, 0, a, b, c, d]);
        tail.copy_from_slice(&mac);
        cookie
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
    let ip = match sender.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
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
