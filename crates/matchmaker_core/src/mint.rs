//! Issues connect tokens: one for one seat on one server instance.

use core::time::Duration;

use crypto::token::CLOCK_SKEW;
use crypto::{ClientGrant, Provider, SealTokenError, Secret32, TokenGrant, UserData};
use wire::{MatchId, UnixTime};

use crate::record::Seated;
use crate::server::{Server, ServerLink};
use crate::ticket::{Assignment, GrantText};

/// Contents of a token.
pub(crate) struct Order<'a> {
    pub(crate) app_id: u64,
    /// The instance that opens it.
    pub(crate) link: ServerLink,
    pub(crate) server: &'a Server,
    pub(crate) match_id: MatchId,
    pub(crate) seated: Seated,
    pub(crate) user: &'a UserData,
    pub(crate) issued_at: UnixTime,
    pub(crate) lifetime: Duration,
}

/// Issues a token under the instance's key, with its own pre-shared key.
///
/// The pre-shared key is in the token and in the player's grant; no copy remains.
pub(crate) fn mint<P: Provider>(
    provider: &mut P,
    order: &Order<'_>,
) -> Result<Assignment, SealTokenError> {
    let expires_at = order.issued_at + order.lifetime;
    // Tokens hold whole seconds; the player gets the same value.
    let expires_at = UnixTime::from_secs(expires_at.as_secs());
    let grant = TokenGrant {
        issued_at: order.issued_at,
        expires_at,
        client_id: order.seated.client_id,
        psk: Secret32::random(provider)?,
        server_id: order.link.instance,
        addresses: order.server.addresses.clone(),
        match_id: order.match_id,
        seat: order.seated.seat,
        team: order.seated.team,
        user: order.user.clone(),
    };
    let token = order
        .server
        .token_key
        .seal(provider, order.app_id, &grant)?;
    let text = ClientGrant {
        app_id: order.app_id,
        expires_at,
        psk: grant.psk,
        server_keys: order.server.identity_keys.clone(),
        addresses: grant.addresses,
        token,
    }
    .to_text();
    Ok(Assignment {
        match_id: order.match_id,
        seat: order.seated.seat,
        team: order.seated.team,
        server: order.link,
        expires_at,
        grant: GrantText::new(text),
    })
}

/// Returns the issue time of a token made at `now`.
///
/// Of two tokens of a player, the server accepts the newer. So the time is later than `last`, even
/// if the clock was set back a little. If it was set back by more than the servers' allowed skew, a
/// later time would be rejected as being in the future, so the clock is used.
pub(crate) fn issue_time(now: UnixTime, last: Option<UnixTime>) -> UnixTime {
    match last {
        Some(last) if last.saturating_since(now) < CLOCK_SKEW => {
            now.max(last + Duration::from_millis(1))
        }
        Some(_) | None => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_token_is_newer_though_the_clock_steps_back() {
        let at = UnixTime::from_millis;
        assert_eq!(issue_time(at(10_000), None), at(10_000));
        assert_eq!(issue_time(at(10_000), Some(at(9_000))), at(10_000));
        assert_eq!(issue_time(at(10_000), Some(at(10_000))), at(10_001));
        assert_eq!(issue_time(at(10_000), Some(at(14_999))), at(15_000));
        assert_eq!(issue_time(at(10_000), Some(at(15_000))), at(10_000));
    }
}
