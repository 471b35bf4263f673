//! What all requests of the API share: limits, keys, and the ways to the hub.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use hub::Name;
use hub::kv::Revision;
use hub::record::LiveOutcome;
use hub::stats_store::StatsView;
use hub::{Completed, StoreOp};
use servicer::{Clock, StreamRequests};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use wire::token_bucket::Fill;
use wire::{Instant, SourceKey, SourceRates};

use super::ApiConfig;
use super::key::{Access, KeyRing};
use super::lease_table::LeaseFault;
use super::link::{LinkRequest, SendFault};
use super::other_shard::Hubs;
use super::presence::Presence;
use super::watch::WatchCounter;
use crate::http::connections::Connections;
use crate::http::count::Counter;
use crate::http::error_response::ErrorResponse;
use crate::http::request::bearer_token;
use crate::hub_client::{HubClient, HubFault, HubStatus};
use crate::log_limit::LogLimiter;

/// The peer of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SourceKey);

/// The key of a request, in its extensions.
#[derive(Clone, Debug)]
pub(super) struct Bearer {
    pub(super) name: Name,
    pub(super) token: zeroize::Zeroizing<String>,
}

/// A value that is fetched again only if it is older than `age_max`. One fetch runs at a time, and
/// the others wait for its value.
#[derive(Debug)]
pub(super) struct Recent<T> {
    age_max: Duration,
    clock: Clock,
    last: tokio::sync::Mutex<Option<(Instant, T)>>,
}

impl<T: Copy> Recent<T> {
    fn new(age_max: Duration) -> Self {
        Self {
            age_max,
            clock: Clock::new(),
            last: tokio::sync::Mutex::new(None),
        }
    }

    async fn get(&self, fetch: impl Future<Output = T>) -> T {
        let mut last = self.last.lock().await;
        if let Some((at, value)) = *last
            && self.clock.now().saturating_since(at) < self.age_max
        {
            return value;
        }
        let value = fetch.await;
        *last = Some((self.clock.now(), value));
        value
    }
}

/// Longest age of the state that a request without a key gets.
const HEALTH_AGE_MAX: Duration = Duration::from_millis(250);

/// The state of the API; no lock but that of `health` is held across a wait.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: ApiConfig,
    pub(super) keys: KeyRing,
    pub(super) connections: Connections,
    pub(super) counter: Counter,
    pub(super) presence: Presence,
    /// Room for `WebSocket`s.
    pub(super) watches: Arc<Semaphore>,
    /// Room for `WebSocket`s with keys.
    pub(super) key_watches: Arc<Semaphore>,
    pub(super) watch_counter: WatchCounter,
    pub(super) hub: HubClient,
    pub(super) hubs: Hubs,
    link: StreamRequests<LinkRequest>,
    clock: Clock,
    failures: Mutex<Failures>,
    /// The hub's state for requests without a key, which must not load its thread.
    health: Recent<Result<HubStatus, HubFault>>,
}

/// Requests without a valid key.
#[derive(Debug)]
struct Failures {
    rates: SourceRates<SourceKey>,
    logged: LogLimiter<SourceKey>,
}

/// Sources with wrong keys that are remembered: 0.5 MiB. If all of them are busy, others wait too.
const SOURCES_MAX: usize = 8_192;

/// `WebSocket`s with keys, at most; as many as the hub allows a node.
pub(super) const KEY_WATCHES_MAX: usize = 64;

impl Shared {
    pub(super) fn new(
        config: ApiConfig,
        keys: KeyRing,
        (hub, link, presence): (HubClient, StreamRequests<LinkRequest>, Presence),
        hubs: Hubs,
    ) -> Self {
        let fill = Fill {
            rate: config.failures_per_second.max(1),
            burst: config.failures_burst.max(1),
        };
        Self {
            keys,
            connections: Connections::new(
                config.connections_max,
                config.connections_per_source_max,
            ),
            counter: Counter::default(),
            presence,
            watches: Arc::new(Semaphore::new(config.watches_max)),
            key_watches: Arc::new(Semaphore::new(KEY_WATCHES_MAX)),
            watch_counter: WatchCounter::default(),
            hub,
            hubs,
            link,
            clock: Clock::new(),
            failures: Mutex::new(Failures {
                rates: SourceRates::new(fill, SOURCES_MAX),
                logged: LogLimiter::default(),
            }),
            health: Recent::new(HEALTH_AGE_MAX),
            config,
        }
    }

    /// Checks that the key of `request` permits `needed`.
    pub(super) fn authorize(
        &self,
        Peer(source): Peer,
        request: &Request,
        needed: Access,
    ) -> Result<Bearer, ErrorResponse> {
        let token = bearer_token(request.headers());
        let Some((token, (name, access))) = token.and_then(|token| {
            let found = self.keys.find(token)?;
            Some((token, found))
        }) else {
            return Err(self.on_wrong_key(source));
        };
        if access < needed {
            return Err(ErrorResponse::new(
                StatusCode::FORBIDDEN,
                "role",
                format!(
                    "this request needs a key with the role {}, and {name} has {}",
                    needed.name(),
                    access.name()
                ),
            ));
        }
        Ok(Bearer {
            name,
            token: zeroize::Zeroizing::new(token.to_owned()),
        })
    }

    fn on_wrong_key(&self, source: SourceKey) -> ErrorResponse {
        let now = self.clock.now();
        // The limits stay valid after a panic.
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(suppressed) = failures.logged.admit(now, source) {
            tracing::warn!(%source, suppressed, "a request without a valid key was refused");
        }
        match failures.rates.take(now, source) {
            Ok(()) => {
                let detail = "expected \"Authorization: Bearer KEY\" with a key that the hub's key file \
                              lists; found none, or another key";
                ErrorResponse::new(StatusCode::UNAUTHORIZED, "no_key", detail)
            }
            Err(wait) => {
                let detail = "too many requests without a valid key from this source";
                ErrorResponse::later("too_many_failures", detail, wait)
            }
        }
    }

    /// Sends a request to the API's node, and waits for its answer.
    pub(super) async fn send<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<T, SendFault>>) -> LinkRequest,
    ) -> Result<T, ErrorResponse> {
        let (answer, answered) = oneshot::channel();
        self.link
            .send(request(answer))
            .map_err(|error| match error {
                servicer::RequestError::Full(_) => ErrorResponse::from(SendFault::Full),
                servicer::RequestError::Ended(_) => ErrorResponse::from(SendFault::HubDown),
            })?;
        match timeout(self.config.answer_timeout, answered).await {
            Ok(Ok(result)) => Ok(result?),
            Ok(Err(_)) => Err(SendFault::HubDown.into()),
            Err(_) => Err(HubFault::TimedOut.into()),
        }
    }

    pub(super) async fn store(&self, op: StoreOp) -> Result<Completed, ErrorResponse> {
        Ok(self.hub.store(self.config.answer_timeout, op).await?)
    }

    /// Calls `question` on the thread of the statistics.
    pub(super) async fn statistics<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut dyn StatsView) -> T + Send + 'static,
    ) -> Result<T, ErrorResponse> {
        let wait = self.config.answer_timeout;
        Ok(self.hub.ask_statistics(wait, question).await?)
    }

    /// Returns the last revision of the hub's keys.
    pub(super) async fn kv_revision(&self) -> Result<Revision, ErrorResponse> {
        Ok(self.hub.kv_revision(self.config.answer_timeout).await?)
    }

    pub(super) async fn status(&self) -> Result<HubStatus, ErrorResponse> {
        Ok(self.hub.status(self.config.answer_timeout).await?)
    }

    /// Returns a status that may be 250 ms old.
    pub(super) async fn recent_status(&self) -> Result<HubStatus, ErrorResponse> {
        let fetch = self.hub.status(self.config.answer_timeout);
        Ok(self.health.get(fetch).await?)
    }

    pub(super) fn unix_time(&self) -> wire::UnixTime {
        self.clock.unix_time()
    }
}

/// The outcome of a message to one player: reached, or why not.
pub(super) fn reached_one(outcome: LiveOutcome) -> Result<(), ErrorResponse> {
    if outcome.refused > 0 {
        let detail = "the hub does not permit this to its API: see HubConfig::kick_roles";
        return Err(ErrorResponse::new(
            StatusCode::FORBIDDEN,
            "not_permitted",
            detail,
        ));
    }
    if outcome.busy > 0 {
        let detail = "the player's node reads too slowly";
        return Err(busy("node_busy", detail));
    }
    if outcome.reached == 0 {
        let detail = "no connected node holds the player";
        return Err(ErrorResponse::new(StatusCode::NOT_FOUND, "offline", detail));
    }
    Ok(())
}

pub(super) fn busy(code: &'static str, detail: impl Into<String>) -> ErrorResponse {
    ErrorResponse::new(StatusCode::SERVICE_UNAVAILABLE, code, detail)
        .retry_after(Duration::from_secs(1))
}

pub(super) fn loading() -> ErrorResponse {
    busy("loading", "the API has no complete presence yet")
}

pub(super) fn too_many_watches() -> ErrorResponse {
    busy("too_many_watches", "as many WebSockets as allowed are open")
}

impl From<HubFault> for ErrorResponse {
    fn from(fault: HubFault) -> Self {
        match fault {
            HubFault::Busy => busy("busy", "the hub has no room for the request now"),
            HubFault::Down => busy("hub_down", "the hub is ending"),
            HubFault::TimedOut => {
                let detail = "the hub has not answered in time; the request may still be executed";
                Self::new(StatusCode::GATEWAY_TIMEOUT, "no_answer", detail)
            }
        }
    }
}

impl From<SendFault> for ErrorResponse {
    fn from(fault: SendFault) -> Self {
        match fault {
            SendFault::HubDown => busy("hub_down", "the API has no link to the hub now"),
            SendFault::Full => busy("busy", "too many messages wait for the hub"),
            SendFault::TooLong => {
                let detail = "the body is longer than a message can be";
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
            }
            SendFault::Refused(refusal) => {
                Self::new(StatusCode::CONFLICT, "mail_refused", refusal.to_string())
            }
            SendFault::OtherMail => {
                let detail = "this Idempotency-Key was used for another mail";
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "key_reused", detail)
            }
            SendFault::TooManyWatches => too_many_watches(),
            SendFault::Lease(LeaseFault::Ended) => {
                let detail = "there is no such lease; it may have ended";
                Self::new(StatusCode::NOT_FOUND, "no_lease", detail)
            }
            SendFault::Lease(LeaseFault::Full) => busy(
                "leases_full",
                "as many leases, or keys of this lease, as allowed",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn ha2_requests_at_once_and_soon_after_share_one_fetch() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let fetches = Cell::new(0);
        let fetch = async || {
            fetches.set(fetches.get() + 1);
            tokio::task::yield_now().await;
            fetches.get()
        };
        runtime.block_on(async {
            let recent = Recent::new(Duration::from_secs(86_400));
            let both = tokio::join!(recent.get(fetch()), recent.get(fetch()));
            assert_eq!((both, recent.get(fetch()).await), ((1, 1), 1));
            let none = Recent::new(Duration::ZERO);
            assert_eq!((none.get(fetch()).await, none.get(fetch()).await), (2, 3));
        });
    }
}
