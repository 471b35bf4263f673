//! Grants of claims with real signatures: what a game node that is broken into can claim.

use crypto::{Identity, Ring};
use hub::join_file::{Grant, NetworkSecret};
use hub::record::{ClaimRequest, Join, RevokeReason, ToHub, ToNode, VERSION};
use hub::{
    BatchSeq, ClaimGrant, ClaimNumber, ClaimPolicy, Command, Completed, Epoch, GrantTerms, Hub,
    HubConfig, JoinFile, Lease, LogId, MailSeq, Redacted, Role, SenderSeq, StoreOp,
};
use servicer::{ClaimIssuer, P256Verifier};
use std::time::Duration;
use wire::{
    ClientId, ConnectionId, InstanceId, Instant, NodeId, PeerIdentity, StreamMachine, UnixTime,
};

const NOW: Instant = Instant::from_millis(1);
const UNIX: UnixTime = UnixTime::from_secs(1_700_000_000);
const END: UnixTime = UnixTime::from_secs(1_700_000_600);
const OWN: ClientId = ClientId(1);
const OTHERS: ClientId = ClientId(2);

struct Network {
    hub: Hub,
    identities: [Identity; 3],
    claims: u64,
}

impl Network {
    /// A hub with granted claims, an issuing matchmaker and two game nodes; both nodes have joined.
    fn new() -> Self {
        let mut provider = Ring::new();
        let identities: [Identity; 3] =
            std::array::from_fn(|_| Identity::generate(&mut provider).unwrap());
        let mut join_file = JoinFile::new(NetworkSecret::new([7; 32]));
        let issuer = Grant::new(Role::Matchmaker, identities[0].node_id()).with_claims();
        join_file.grants.push(issuer);
        for node in &identities[1..] {
            let grant = Grant::new(Role::GameNode, node.node_id());
            join_file.grants.push(grant);
        }
        let join_file = JoinFile::parse(&join_file.to_text()).unwrap();
        let mut config = HubConfig::default();
        config.access.claims = ClaimPolicy::Granted;
        let mut hub = Hub::new(config, join_file, NOW);
        hub.set_claim_verifier(Box::new(P256Verifier::new()));
        hub.set_unix_time(NOW, UNIX);
        let mut network = Self {
            hub,
            identities,
            claims: 0,
        };
        for index in [1, 2] {
            network.join(index);
        }
        network
    }

    fn node(&self, index: usize) -> NodeId {
        self.identities[index].node_id()
    }

    fn link(index: usize) -> ConnectionId {
        ConnectionId(u32::try_from(index).unwrap())
    }

    fn send(&mut self, index: usize, record: &ToHub<'_>) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        self.hub.handle_frame(NOW, Self::link(index), &bytes);
    }

    fn join(&mut self, index: usize) {
        let link = Self::link(index);
        let identity = PeerIdentity::Node(self.node(index));
        self.hub.handle_opened(NOW, link, &identity);
        self.hub.handle_credit(NOW, link, 1 << 30);
        self.send(
            index,
            &ToHub::Join(Join {
                version: VERSION,
                role: Role::GameNode,
                instance: InstanceId(1),
                epoch: Epoch(0),
                watch: 0,
                services: Vec::new(),
            }),
        );
        let (id, command) = self.hub.poll_command().unwrap();
        assert!(matches!(command, Command::Store(StoreOp::Join { .. })));
        let joined = Completed::Joined {
            epoch: Epoch(1),
            boot: 1,
            log: LogId(7),
            newest: UnixTime::default(),
            ran: Duration::ZERO,
            last_mail: MailSeq(1_000_000),
            mail_mark: SenderSeq(0),
            count_mark: BatchSeq(0),
        };
        self.hub.handle_completed(NOW, id, Ok(joined));
        while self.hub.poll_command().is_some() {}
    }

    fn issue(&self, issuer: usize, player: ClientId, node: usize) -> ClaimGrant {
        self.issue_until(issuer, player, node, END)
    }

    fn issue_until(
        &self,
        issuer: usize,
        player: ClientId,
        node: usize,
        not_after: UnixTime,
    ) -> ClaimGrant {
        let terms = GrantTerms {
            player,
            node: self.node(node),
            not_after,
        };
        let mut issuer = ClaimIssuer::new(&self.identities[issuer]).unwrap();
        issuer.issue(&terms).unwrap()
    }

    /// Claims `player` by node `index`; returns the reason if it is rejected.
    fn claim(
        &mut self,
        index: usize,
        player: ClientId,
        grant: Option<&[u8]>,
    ) -> Option<RevokeReason> {
        self.claims += 1;
        let number = ClaimNumber(self.claims);
        let claim = ClaimRequest {
            player,
            claim: number,
            lease: Lease::NONE,
            delivered: MailSeq(0),
            acknowledged: MailSeq(0),
            meta: Redacted(b""),
        };
        let record = match grant {
            Some(grant) => ToHub::ClaimGranted { claim, grant },
            None => ToHub::Claim(claim),
        };
        self.send(index, &record);
        let mut buf = Vec::new();
        let mut answer = None;
        while self.hub.poll_outbound(NOW, &mut buf).is_some() {
            match ToNode::decode(&buf) {
                Ok(ToNode::Granted { claim, .. }) if claim == number => answer = Some(None),
                Ok(ToNode::Revoked { claim, reason, .. }) if claim == number => {
                    answer = Some(Some(reason));
                }
                _ => {}
            }
            buf.clear();
        }
        answer.expect("each claim is answered")
    }
}

#[test]
fn hub_8_a_game_nodes_folder_claims_no_player_of_another_node() {
    let mut network = Network::new();
    let granted = network.issue(0, OWN, 1);
    let bytes = granted.as_bytes();
    assert_eq!(network.claim(1, OWN, Some(bytes)), None);
    // Everything that the folder of node 1 holds: its key, the join file, its grants.
    let invalid = Some(RevokeReason::GrantInvalid);
    assert_eq!(
        network.claim(1, OTHERS, None),
        Some(RevokeReason::GrantNeeded)
    );
    assert_eq!(network.claim(1, OTHERS, Some(bytes)), invalid);
    let own_key = network.issue(1, OTHERS, 1);
    assert_eq!(network.claim(1, OTHERS, Some(own_key.as_bytes())), invalid);
    // Its key, and the public key of the issuer.
    let mut pasted = *own_key.as_bytes();
    pasted[49..114].copy_from_slice(&bytes[49..114]);
    assert_eq!(network.claim(1, OTHERS, Some(&pasted)), invalid);
    // The grant of another node, seen somewhere, and the own one edited.
    let foreign = network.issue(0, OTHERS, 2);
    let foreign = foreign.as_bytes();
    assert_eq!(network.claim(1, OTHERS, Some(foreign)), invalid);
    let mut readdressed = *foreign;
    readdressed[9..41].copy_from_slice(&bytes[9..41]);
    assert_eq!(network.claim(1, OTHERS, Some(&readdressed)), invalid);
    let stats = network.hub.stats();
    assert_eq!(stats.claims_ungranted, 1);
    assert_eq!(stats.claims_foreign, 2);
    assert_eq!(stats.claims_forged, 3);
    assert_eq!(network.hub.holder(OTHERS), None);
    assert_eq!(network.claim(2, OTHERS, Some(foreign)), None);
    assert_eq!(network.hub.holder(OTHERS), Some(network.node(2)));
}

#[test]
fn hub_8_no_bit_of_a_grant_may_change() {
    let mut network = Network::new();
    let granted = network.issue(0, OWN, 1);
    for at in 0..ClaimGrant::LEN {
        let mut changed = *granted.as_bytes();
        changed[at] ^= 1 << (at % 8);
        assert!(network.claim(1, OWN, Some(&changed)).is_some(), "byte {at}");
    }
    assert_eq!(network.hub.holder(OWN), None);
}

#[test]
fn hub_8_an_expired_grant_is_refused() {
    let mut network = Network::new();
    let over = network.issue_until(0, OWN, 1, UnixTime::from_secs(1_699_999_999));
    assert_eq!(
        network.claim(1, OWN, Some(over.as_bytes())),
        Some(RevokeReason::GrantExpired)
    );
    let last = network.issue_until(0, OWN, 1, UNIX);
    assert_eq!(network.claim(1, OWN, Some(last.as_bytes())), None);
    assert_eq!(network.hub.stats().claims_expired, 1);
}

#[test]
fn hub_8_a_node_cannot_take_a_player_back_with_an_earlier_grant() {
    let mut network = Network::new();
    let first = network.issue(0, OWN, 1);
    assert_eq!(network.claim(1, OWN, Some(first.as_bytes())), None);
    let later = END + Duration::from_secs(60);
    let moved = network.issue_until(0, OWN, 2, later);
    assert_eq!(network.claim(2, OWN, Some(moved.as_bytes())), None);
    assert_eq!(
        network.claim(1, OWN, Some(first.as_bytes())),
        Some(RevokeReason::Taken)
    );
    assert_eq!(network.hub.holder(OWN), Some(network.node(2)));
}

#[test]
fn a_key_that_the_join_file_no_longer_marks_issues_nothing() {
    let mut network = Network::new();
    let mut join_file = JoinFile::new(NetworkSecret::new([7; 32]));
    for (index, role) in [Role::Matchmaker, Role::GameNode, Role::GameNode]
        .into_iter()
        .enumerate()
    {
        let grant = Grant::new(role, network.node(index));
        join_file.grants.push(grant);
    }
    let granted = network.issue(0, OWN, 1);
    assert_eq!(network.claim(1, OWN, Some(granted.as_bytes())), None);
    network.hub.set_join_file(join_file);
    let other = network.issue(0, OTHERS, 1);
    for (player, grant) in [(OTHERS, other), (OWN, granted)] {
        assert_eq!(
            network.claim(1, player, Some(grant.as_bytes())),
            Some(RevokeReason::GrantInvalid)
        );
    }
}
