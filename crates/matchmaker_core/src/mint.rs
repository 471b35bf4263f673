//! Issues connect tokens: one for one seat on one server instance.

use core::time::Duration;

use crypto::token::CLOCK_SKEW;
use crypto::{ClientGrant, Provider, SealTokenError, Secret32, TokenGrant, UserData};
use wire::{MatchId, UnixTime};

use crate::record::Seated;
use crate::server::{Server, ServerLink};
use crate::ticket::{Assignment, GrantText};

/// Contents of a token.
pub(crate) struct TokenRequest<'a> {
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

/// Issues a token under the instance's key, with its own pre-shared key, of which no copy remains.
pub(crate) fn mint<P: Provider>(
    provider: &mut P,
    request: &TokenRequest<'_>,
) -> Result<Assignment, SealTokenError> {
    let expires_at = request.issued_at + request.lifetime;
    // Tokens hold whole seconds; the player gets the same value.
    let expires_at = UnixTime::from_secs(expires_at.as_secs());
    let grant = TokenGrant {
        issued_at: request.issued_at,
        expires_at,
        client_id: request.seated.client_id,
        psk: Secret32::random(provider)?,
        server_id: request.link.instance,
        addresses: request.server.addresses.clone(),
        match_id: request.match_id,
        seat: request.seated.seat,
        team: request.seated.team,
        user: request.user.clone(),
    };
    let token = request
        .server
        .token_key
        .seal(provider, request.app_id, &grant)?;
    let text = ClientGrant {
        app_id: request.app_id,
        expires_at,
        psk: grant.psk,
        server_keys: request.server.identity_keys.clone(),
        addresses: grant.addresses,
        token,
    }
    .to_text();
    Ok(Assignment {
        match_id: request.match_id,
        seat: request.seated.seat,
        team: request.seated.team,
        server: request.link,
        expires_at,
        grant: GrantText::new(text),
    })
}

/// Returns the issue time of a token made at `now`.
///
/// Of two tokens of a player, the server accepts the newer, so the time is later than `last`. If the
/// clock was set back by more than the allowed skew, such a time would be rejected as future.
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
