//! Which claims a hub grants, and how fast a node may send mail.

use core::fmt;
use std::collections::{BTreeMap, VecDeque};

use wire::{ClientId, Instant, NodeId, UnixTime};

use super::ENTRY_BYTES;
use crate::claim_grant::{ClaimGrant, ClaimVerifier};
use crate::field::Role;
use crate::join_file::JoinFile;
use crate::record::RevokeReason;

/// Access of nodes to players and to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessConfig {
    /// Which claims are granted. Default: of any node for any player.
    pub claims: ClaimPolicy,
    /// Verified grants that are remembered, 240 bytes each. Default 16,384. Others are verified
    /// again when they are presented again, as all are after a restart of the hub.
    pub grants_cached_max: usize,
    /// Invalid grants of one node that are checked each second. Default 16, each for about 0.1 ms of
    /// CPU. Further ones are rejected unchecked.
    pub forged_grants_max: u32,
    /// How fast nodes may send mail, by role.
    pub rates: SenderRates,
}

impl Default for AccessConfig {
    fn default() -> Self {
        Self {
            claims: ClaimPolicy::Plain,
            grants_cached_max: 16_384,
            forged_grants_max: 16,
            rates: SenderRates::default(),
        }
    }
}

/// Which claims a hub grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimPolicy {
    /// Any node that has joined may claim any player: a node that is broken into can read the mail of
    /// every player.
    Plain,
    /// A claim needs a [`ClaimGrant`] for that node and player, signed by a key that the join file
    /// marks with `issues=claims`.
    Granted,
}

/// How fast nodes may send mail, by role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderRates([SenderRate; 6]);

/// How fast one node, and all nodes of a role, may send mail. They may send the mail of one second at
/// once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderRate {
    /// Mails a second. Default `u32::MAX`: unlimited, since the store already shares its time: a
    /// sender gets `Busy` once its own mail in flight takes as much as is left for all.
    pub mails_per_s: u32,
    /// Bytes of bodies a second. Default `u32::MAX`: unlimited.
    pub mail_bytes_per_s: u32,
    /// Mails a second of all nodes of the role. Default `u32::MAX`: unlimited.
    pub role_mails_per_s: u32,
    /// Bytes of bodies a second of all nodes of the role. Default `u32::MAX`: unlimited.
    pub role_mail_bytes_per_s: u32,
}

impl Default for SenderRate {
    fn default() -> Self {
        Self {
            mails_per_s: u32::MAX,
            mail_bytes_per_s: u32::MAX,
            role_mails_per_s: u32::MAX,
            role_mail_bytes_per_s: u32::MAX,
        }
    }
}

impl SenderRates {
    /// Returns the rate of nodes that have joined as `role`.
    #[must_use]
    pub fn of(&self, role: Role) -> SenderRate {
        let rate = self.0.get(usize::from(role as u8));
        rate.copied().unwrap_or_default()
    }

    /// Sets the rate of nodes that join as `role`.
    pub fn set(&mut self, role: Role, rate: SenderRate) {
        if let Some(known) = self.0.get_mut(usize::from(role as u8)) {
            *known = rate;
        }
    }
}

/// Verifies grants, and limits rates.
#[derive(Default)]
pub(super) struct Access {
    verifier: Option<Box<dyn ClaimVerifier>>,
    /// Verified grants with their issuers.
    verified: BTreeMap<ClaimGrant, NodeId>,
    /// The same in the order in which they were verified.
    order: VecDeque<ClaimGrant>,
    forged: BTreeMap<NodeId, Budget>,
    mails: BTreeMap<NodeId, Budget>,
    bytes: BTreeMap<NodeId, Budget>,
    role_mails: BTreeMap<Role, Budget>,
    role_bytes: BTreeMap<Role, Budget>,
}

/// Why a claim is not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GrantFault {
    /// There is no grant.
    Missing,
    /// It is for another node or player.
    Foreign,
    /// It has expired, or the hub has no wall clock.
    Expired,
    /// Its form is invalid, its key does not belong to an issuer, or has not signed it.
    Forged,
}

impl GrantFault {
    pub(super) const fn reason(self) -> RevokeReason {
        match self {
            Self::Missing => RevokeReason::GrantNeeded,
            Self::Expired => RevokeReason::GrantExpired,
            Self::Foreign | Self::Forged => RevokeReason::GrantInvalid,
        }
    }
}

/// A claim to check.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimant<'a> {
    pub(super) node: NodeId,
    pub(super) player: ClientId,
    pub(super) grant: Option<&'a [u8]>,
    /// The end of the grant with which the node holds the player already.
    pub(super) held: Option<UnixTime>,
}

impl Access {
    pub(super) fn set_verifier(&mut self, verifier: Box<dyn ClaimVerifier>) {
        self.verifier = Some(verifier);
    }

    /// Checks a claim; returns the end of its grant, if it needs one.
    pub(super) fn check_claim(
        &mut self,
        config: &AccessConfig,
        join_file: &JoinFile,
        (now, unix): (Instant, Option<UnixTime>),
        claimant: Claimant<'_>,
    ) -> Result<Option<UnixTime>, GrantFault> {
        if config.claims == ClaimPolicy::Plain {
            return Ok(None);
        }
        let bytes = claimant.grant.ok_or(GrantFault::Missing)?;
        let grant = ClaimGrant::parse(bytes).ok_or(GrantFault::Forged)?;
        let terms = grant.terms();
        if (terms.node, terms.player) != (claimant.node, claimant.player) {
            return Err(GrantFault::Foreign);
        }
        // What was proved once is kept when the link was cut, also after its end.
        if claimant.held != Some(terms.not_after)
            && unix.is_none_or(|unix| unix.as_secs() > terms.not_after.as_secs())
        {
            return Err(GrantFault::Expired);
        }
        let issuer = self.issuer(config, (now, claimant.node), grant)?;
        let mut grants = join_file.grants_of(issuer);
        if !grants.any(|grant| grant.issues_claims) {
            return Err(GrantFault::Forged);
        }
        Ok(Some(terms.not_after))
    }

    fn issuer(
        &mut self,
        config: &AccessConfig,
        (now, node): (Instant, NodeId),
        grant: ClaimGrant,
    ) -> Result<NodeId, GrantFault> {
        if let Some(issuer) = self.verified.get(&grant) {
            return Ok(*issuer);
        }
        let budget = self.forged.entry(node).or_default();
        if !budget.has(now, config.forged_grants_max, 1) {
            return Err(GrantFault::Forged);
        }
        let verifier = self.verifier.as_deref().ok_or(GrantFault::Forged)?;
        let Some(issuer) = grant.issuer(verifier) else {
            budget.take(1);
            return Err(GrantFault::Forged);
        };
        self.verified.insert(grant, issuer);
        self.order.push_back(grant);
        if self.order.len() > config.grants_cached_max
            && let Some(oldest) = self.order.pop_front()
        {
            self.verified.remove(&oldest);
        }
        Ok(issuer)
    }

    /// Charges a mail of `len` bytes; returns false if the node or its role exceeds the rate.
    pub(super) fn admit_mail(
        &mut self,
        now: Instant,
        (node, role): (NodeId, Role),
        rate: SenderRate,
        len: usize,
    ) -> bool {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let mut budgets = Vec::new();
        let of_node = [
            (&mut self.mails, rate.mails_per_s, 1),
            (&mut self.bytes, rate.mail_bytes_per_s, len),
        ];
        for (table, per_s, amount) in of_node {
            if per_s < u32::MAX {
                budgets.push((table.entry(node).or_default(), per_s, amount));
            }
        }
        let of_role = [
            (&mut self.role_mails, rate.role_mails_per_s, 1),
            (&mut self.role_bytes, rate.role_mail_bytes_per_s, len),
        ];
        for (table, per_s, amount) in of_role {
            if per_s < u32::MAX {
                budgets.push((table.entry(role).or_default(), per_s, amount));
            }
        }
        let mut all = budgets.iter_mut();
        let is_admitted = all.all(|(budget, per_s, amount)| budget.has(now, *per_s, *amount));
        if is_admitted {
            for (budget, _, amount) in budgets {
                budget.take(amount);
            }
        }
        is_admitted
    }

    pub(super) fn memory_bytes(&self) -> usize {
        const GRANT: usize = 2 * ClaimGrant::LEN + 32 + ENTRY_BYTES;
        let budgets = [&self.forged, &self.mails, &self.bytes];
        let budgets: usize = budgets.into_iter().map(BTreeMap::len).sum();
        let grants = self.verified.len().saturating_mul(GRANT);
        grants.saturating_add(budgets.saturating_mul(64 + ENTRY_BYTES))
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("verified", &self.verified.len())
            .finish_non_exhaustive()
    }
}

/// A token bucket that holds the amount of one second.
#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    /// What is used of the bucket.
    used: u32,
    /// When it was last refilled; `None` before the first use.
    refilled: Option<Instant>,
}

impl Budget {
    /// Refills by `per_s`; returns whether `amount` is left. More than a bucket is let through if it
    /// is full.
    fn has(&mut self, now: Instant, per_s: u32, amount: u32) -> bool {
        let since = self.refilled.get_or_insert(now);
        let passed = now.saturating_since(*since).as_micros();
        let refill = passed.saturating_mul(per_s.into()) / 1_000_000;
        if refill > 0 {
            self.used = self
                .used
                .saturating_sub(u32::try_from(refill).unwrap_or(u32::MAX));
            *since = now;
        }
        per_s > 0 && (self.used == 0 || self.used.saturating_add(amount) <= per_s)
    }

    const fn take(&mut self, amount: u32) {
        self.used = self.used.saturating_add(amount);
    }
}
