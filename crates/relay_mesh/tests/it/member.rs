//! A member of the network that requests what it must not get.

use crypto::Secret32;
use netsim::provider::SimProvider;
use netsim::{App, Handle, Host};
use relay_mesh::detour::{Detoured, ForwardHop};
use relay_mesh::hop::{LabelName, NextLabel};
use relay_mesh::message::code;
use relay_mesh::route_request::{
    Bind, Granted, GrantedNext, Refused, RequestId, RouteRelease, RouteReply, RouteRequest,
};
use udp_proto::{
    AppId, ChannelId, CloseCode, Config, Credentials, Endpoint, Event, Listen, Network,
    ServerIdentity, SessionId, Target,
};
use wire::{InstanceId, Instant, NodeId, Seed};

use crate::harness::{EXIT, Mesh, RELAY, START, Shape, identity, mesh_address, ms};

const APP: AppId = AppId(0x7469_636b_6d65_7368);
pub(crate) const RELIABLE: ChannelId = ChannelId(1);

/// Collects the messages sent to the member.
#[derive(Default)]
pub(crate) struct Replies {
    pub(crate) session: Option<SessionId>,
    answers: Vec<(RequestId, RouteReply)>,
    /// Whether it closes every session that opens, and how often it did.
    closes: bool,
    closed: usize,
}

impl App<Endpoint<SimProvider>> for Replies {
    fn on_event(&mut self, now: Instant, machine: &mut Endpoint<SimProvider>, event: Event) {
        match event {
            Event::Connected { session, .. } if self.closes => {
                self.closed += 1;
                machine
                    .close(now, session, CloseCode::NoError, &[])
                    .unwrap();
            }
            Event::Connected { session, .. } => self.session = Some(session),
            Event::Readable { session } => {
                let mut message = Vec::new();
                while machine.receive(now, session, &mut message).is_some() {
                    if message.first() == Some(&code::ROUTE_REPLY) {
                        self.answers.push(RouteReply::decode(&message).unwrap());
                    }
                    message.clear();
                }
            }
            Event::ConnectFailed { .. }
            | Event::MtuChecked { .. }
            | Event::RateChanged { .. }
            | Event::Closed { .. }
            | Event::Settled { .. }
            | _ => {}
        }
    }
}

pub(crate) type Member = Handle<Host<Endpoint<SimProvider>, Replies>>;

pub(crate) struct Harness {
    pub(crate) mesh: Mesh,
    pub(crate) member: Member,
    pub(crate) own: NodeId,
    next: u64,
}

/// Dials the first relay from an unused address, with the identity of this number.
pub(crate) fn join(mesh: &mut Mesh, number: usize) -> Member {
    join_at(mesh, number, RELAY)
}

/// Like [`join`], for the node with index `to`.
pub(crate) fn join_at(mesh: &mut Mesh, number: usize, to: usize) -> Member {
    let own = identity(mesh.seed, number);
    let draws = 4_000 + u64::try_from(number).unwrap();
    let provider = SimProvider::new(mesh.seed.generator(draws).seed());
    let to = (mesh.ids[to], mesh_address(to));
    mesh.world.add(mesh_address(number), |now| {
        let mut endpoint = Endpoint::new(Config::default(), APP, provider, now).unwrap();
        let network = Network {
            secret: Secret32::new([7; 32]),
            previous: None,
        };
        let listen = Listen::new(own, InstanceId(1)).with_network(network);
        endpoint.listen(now, listen).unwrap();
        let target = Target {
            addresses: vec![to.1],
            server: ServerIdentity::Node(to.0),
            credentials: Credentials::Peer,
        };
        endpoint.connect(now, target).unwrap();
        Host::new(endpoint, Replies::default())
    })
}

impl Harness {
    fn new(number: u64) -> Self {
        Self::with(number, &Shape::default())
    }

    pub(crate) fn with(number: u64, shape: &Shape) -> Self {
        Self::at(number, shape, RELAY)
    }

    pub(crate) fn at(number: u64, shape: &Shape, to: usize) -> Self {
        let mut mesh = Mesh::new(Seed::from_number(number), shape);
        mesh.run(START);
        let member = join_at(&mut mesh, 98, to);
        let own = identity(mesh.seed, 98).node_id();
        mesh.run(3_000);
        assert!(mesh.world[member].app.session.is_some(), "connected");
        Self {
            mesh,
            member,
            own,
            next: 0,
        }
    }

    /// Makes the member dial the node with index `to` too, and talk to that node from now on.
    pub(crate) fn turn_to(&mut self, to: usize) {
        let (node, address) = (self.mesh.ids[to], mesh_address(to));
        self.mesh.world.apply(self.member, |host, now| {
            let target = Target {
                addresses: vec![address],
                server: ServerIdentity::Node(node),
                credentials: Credentials::Peer,
            };
            host.machine.connect(now, target).unwrap();
        });
        self.mesh.run(1_000);
    }

    /// Switches the member to another of its sessions. Returns the previous one.
    pub(crate) fn speak_over(&mut self, session: SessionId) -> SessionId {
        self.mesh.world.apply(self.member, |host, _| {
            host.app.session.replace(session).unwrap()
        })
    }

    pub(crate) fn session(&self) -> SessionId {
        self.mesh.world[self.member].app.session.unwrap()
    }

    /// Takes the replies to its requests.
    pub(crate) fn take_answers(&mut self) -> Vec<(RequestId, RouteReply)> {
        self.mesh.world.apply(self.member, |host, _| {
            core::mem::take(&mut host.app.answers)
        })
    }

    pub(crate) fn transmit(&mut self, message: &[u8]) {
        self.mesh.world.apply(self.member, |host, now| {
            let session = host.app.session.unwrap();
            host.machine.send(now, session, RELIABLE, message).unwrap();
        });
    }

    /// Closes the session, and every session that opens from now on.
    pub(crate) fn close_all(&mut self) {
        self.mesh.run(500);
        self.mesh.world.apply(self.member, |host, now| {
            let session = host.app.session.unwrap();
            host.app.closes = true;
            host.machine
                .close(now, session, CloseCode::NoError, &[])
                .unwrap();
        });
    }

    pub(crate) fn closed(&self) -> usize {
        self.mesh.world[self.member].app.closed
    }

    /// Claims to forward a datagram of `node` to the peer it talks to.
    pub(crate) fn pass_on(&mut self, node: NodeId, datagram: &[u8]) {
        let hop = ForwardHop::Second;
        let mut message = Vec::new();
        let detoured = Detoured {
            hop,
            node,
            datagram,
        };
        detoured.encode(&mut message);
        self.transmit(&message);
    }

    pub(crate) fn ask(&mut self, request: &RouteRequest) -> RouteReply {
        self.next += 1;
        self.ask_as(RequestId(self.next), request)
    }

    fn ask_as(&mut self, id: RequestId, request: &RouteRequest) -> RouteReply {
        let mut message = Vec::new();
        request.encode(id, &mut message);
        self.transmit(&message);
        self.mesh.run(400);
        let mut replies = self.take_answers();
        let (answered, reply) = replies.pop().expect("an answer");
        assert_eq!(answered, id);
        assert!(replies.is_empty(), "one answer each");
        reply
    }

    pub(crate) fn stats(&self) -> relay_mesh::RefusedRequests {
        self.mesh.process(RELAY).node.stats().requests_refused
    }
}

const fn label(slot: u32) -> LabelName {
    LabelName {
        slot,
        generation: 0,
    }
}

#[test]
fn mesh_a1_a_member_gets_no_label_that_is_not_its_own() {
    let mut harness = Harness::new(1);
    let (own, exit, outsider) = (harness.own, harness.mesh.ids[EXIT], NodeId([9; 32]));

    let unknown = RouteRequest::ReserveTransit {
        previous: outsider,
        count: 1,
    };
    assert_eq!(harness.ask(&unknown), RouteReply::Refused(Refused::NoLink));

    let terminal = RouteRequest::ReserveTerminal {
        previous: own,
        flows: vec![relay_mesh::FlowId(1)],
        path: 0,
    };
    assert_eq!(
        harness.ask(&terminal),
        RouteReply::Refused(Refused::UnknownFlow)
    );

    let reserve = RouteRequest::ReserveTransit {
        previous: own,
        count: 2,
    };
    let RouteReply::Done(granted) = harness.ask(&reserve) else {
        panic!("a member may pass");
    };
    assert_eq!(granted.len(), 2);

    // A label of the exit that was given to another node, with a forged grant.
    let bind = |label: LabelName, grant| RouteRequest::Bind {
        next: exit,
        binds: vec![Bind {
            label,
            next: self::label(0).into(),
            grant,
        }],
    };
    let guessed = bind(granted[0].label, [0; 16]);
    assert_eq!(
        harness.ask(&guessed),
        RouteReply::Refused(Refused::BadGrant)
    );
    // The member's grant is for the relay's label, not for the exit's.
    let foreign = bind(granted[0].label, granted[0].grant);
    assert_eq!(
        harness.ask(&foreign),
        RouteReply::Refused(Refused::BadGrant)
    );
    // Labels of other flows, which have low slots.
    for slot in 0..4 {
        if granted.iter().all(|granted| granted.label.slot != slot) {
            let others = bind(label(slot), [0; 16]);
            assert_eq!(harness.ask(&others), RouteReply::Refused(Refused::BadLabel));
        }
    }
    let stats = harness.stats();
    assert!(
        stats.no_link == 1 && stats.unknown_flow == 1 && stats.bad_grant == 2,
        "{stats:?}"
    );
    assert!(stats.bad_label >= 2, "{stats:?}");
    assert_eq!(harness.mesh.player().faults, 0);
}

#[test]
fn mesh_a1_a_node_that_may_not_bind_a_label_gets_none() {
    let mut harness = Harness::new(4);
    let at_relay = harness.session();
    let [exit, relay, other] = [EXIT, RELAY, RELAY + 1].map(|index| harness.mesh.ids[index]);
    harness.turn_to(RELAY + 1);
    let given = take(&mut harness, relay, 1);
    harness.speak_over(at_relay);
    let own = harness.own;
    let of_another_hop = take(&mut harness, own, 1);
    let of_itself = take(&mut harness, other, 1);
    let labels = |harness: &Harness| harness.mesh.process(RELAY).node.labels();
    let before = labels(&harness);
    let to = |granted: &Granted| GrantedNext {
        next: NextLabel {
            name: granted.label,
            form: granted.form.clone(),
        },
        grant: granted.grant,
    };
    let made_up = GrantedNext {
        next: label(0).into(),
        grant: [0; 16],
    };
    let good = to(&given[0]);
    for (next, to, why) in [
        (exit, vec![made_up.clone()], Refused::BadGrant),
        (other, vec![to(&of_another_hop[0])], Refused::BadGrant),
        // A grant of the relay itself, for frames from the node that it would send them to.
        (other, vec![to(&of_itself[0])], Refused::BadGrant),
        (exit, vec![good.clone()], Refused::BadGrant),
        // Binds made before the last one failed are undone.
        (other, vec![good.clone(), made_up], Refused::BadGrant),
        (other, vec![good.clone(), good.clone()], Refused::LabelTaken),
        (NodeId([9; 32]), vec![good.clone()], Refused::NoLink),
        (relay, vec![good.clone()], Refused::NoLink),
    ] {
        let answer = harness.ask(&RouteRequest::PassOn { next, to });
        assert_eq!(answer, RouteReply::Refused(why));
        assert_eq!(labels(&harness), before);
    }
    let (next, to) = (other, vec![good]);
    let answer = harness.ask(&RouteRequest::PassOn { next, to });
    assert!(matches!(&answer, RouteReply::Done(granted) if granted.len() == 1));
    assert_eq!(labels(&harness), before + 1);
    assert_eq!(harness.mesh.player().faults, 0);
}

#[test]
fn a_repeated_request_is_charged_again() {
    let once = |_: usize, config: &mut relay_mesh::Config, _: &[NodeId]| config.request_rate = 1;
    let shape = Shape {
        adjust: once,
        ..Shape::default()
    };
    let mut harness = Harness::with(2, &shape);
    let reserve = RouteRequest::ReserveTransit {
        previous: harness.own,
        count: 4,
    };
    let first = harness.ask_as(RequestId(77), &reserve);
    assert!(matches!(first, RouteReply::Done(_)));
    let again = harness.ask_as(RequestId(77), &reserve);
    assert_eq!(again, RouteReply::Refused(Refused::TooMany));
}

#[test]
fn mesh_a1_requests_and_labels_of_a_member_are_bounded() {
    let mut harness = Harness::new(3);
    let own = harness.own;
    for id in 1_000..1_500 {
        let mut message = Vec::new();
        let reserve = RouteRequest::ReserveTransit {
            previous: own,
            count: 64,
        };
        reserve.encode(RequestId(id), &mut message);
        harness.transmit(&message);
        if id % 20 == 0 {
            harness.mesh.run(10);
        }
    }
    harness.mesh.run(1_000);
    let stats = harness.stats();
    // A burst of 16,384 labels is 256 requests. Each second earns 64 more.
    assert!((160..=244).contains(&stats.too_many), "{stats:?}");
    for broken in [
        &[code::ROUTE_REQUEST][..],
        &[0x77, 1, 2],
        &[code::LINK_RECORD, 0],
    ] {
        harness.transmit(broken);
    }
    harness.mesh.run(500);
    let relay = &harness.mesh.process(RELAY).node;
    assert!(relay.stats().messages_malformed >= 2);
    assert_eq!(relay.table_stats().malformed, 1);
    assert_eq!(relay.gossip_stats().over_rate, 0);
    assert!(relay.memory() < 16 << 20, "{}", relay.memory());
    let now = harness.mesh.now();
    assert!(
        harness
            .mesh
            .player()
            .gap(now.saturating_sub(ms(1_000)), now)
            < ms(50)
    );
}

/// The member reserves labels at the node that it talks to.
pub(crate) fn take(harness: &mut Harness, previous: NodeId, count: u8) -> Vec<Granted> {
    match harness.ask(&RouteRequest::ReserveTransit { previous, count }) {
        RouteReply::Done(granted) => granted,
        RouteReply::Refused(why) => panic!("{why:?}"),
    }
}

fn give_back(harness: &mut Harness, granted: &[Granted]) {
    let mut message = Vec::new();
    let names = granted.iter().map(|it| it.label);
    RouteRelease::new(names).unwrap().encode(&mut message);
    harness.transmit(&message);
}

pub(crate) fn bind(
    harness: &mut Harness,
    next: NodeId,
    own: &[Granted],
    theirs: &[Granted],
) -> RouteReply {
    let binds = own.iter().zip(theirs).map(|(own, theirs)| Bind {
        label: own.label,
        next: NextLabel {
            name: theirs.label,
            form: theirs.form.clone(),
        },
        grant: theirs.grant,
    });
    let binds = binds.collect();
    harness.ask(&RouteRequest::Bind { next, binds })
}

/// A member collects grants until the generations wrap, and binds those names before others do.
#[test]
fn mesh_a1_grants_of_ended_labels_block_no_hop() {
    let mut harness = Harness::new(77);
    harness.mesh.stop_player();
    let (relay, behind) = (harness.mesh.ids[RELAY], harness.mesh.ids[RELAY + 1]);
    // The attacker is 98, the honest member 97. Both have sessions with both relays.
    let (attacker, bad, bad_relay) = (harness.member, harness.own, harness.session());
    harness.turn_to(RELAY + 1);
    let bad_behind = harness.session();
    let honest = join_at(&mut harness.mesh, 97, RELAY);
    harness.mesh.run(3_000);
    let good = identity(harness.mesh.seed, 97).node_id();
    harness.member = honest;
    let good_relay = harness.session();
    harness.turn_to(RELAY + 1);
    let good_behind = harness.session();
    let attempt = |harness: &mut Harness| {
        harness.member = honest;
        harness.speak_over(good_behind);
        let theirs = take(harness, relay, 16);
        harness.speak_over(good_relay);
        let own = take(harness, good, 16);
        let answer = bind(harness, behind, &own, &theirs);
        give_back(harness, &own);
        harness.speak_over(good_behind);
        give_back(harness, &theirs);
        harness.mesh.run(1_000);
        answer
    };
    let done = RouteReply::Done(Vec::new());
    assert_eq!(attempt(&mut harness), done);

    harness.member = attacker;
    harness.speak_over(bad_behind);
    let mut early = Vec::new();
    loop {
        let granted = take(&mut harness, relay, 64);
        give_back(&mut harness, &granted);
        let has = |generation| granted.iter().any(|it| it.label.generation == generation);
        let is_round = has(255);
        if has(0) || has(1) {
            early.push(granted);
        }
        if is_round {
            break;
        }
    }
    harness.mesh.run(245_000);
    harness.speak_over(bad_relay);
    for theirs in early.iter().take(6) {
        let own = take(&mut harness, bad, 64);
        bind(&mut harness, behind, &own, theirs);
    }
    for _ in 0..6 {
        assert_eq!(attempt(&mut harness), done);
    }
}
