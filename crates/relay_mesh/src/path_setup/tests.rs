use core::net::SocketAddr;

use crypto::{Identity, Secret32};
use netsim::provider::SimProvider;
use udp_proto::{AppId, Config, Credentials, Endpoint, Listen, Network, ServerIdentity, Target};
use wire::{InstanceId, Seed};

use super::*;

use crate::hop::{HopForm, HopKey, LabelName};

fn node(number: u8) -> NodeId {
    NodeId([number; 32])
}

fn granted(slot: u32) -> Granted {
    Granted {
        label: LabelName {
            slot,
            generation: 0,
        },
        form: HopForm::TagOnly(HopKey([u8::try_from(slot).unwrap(); 16])),
        grant: [u8::try_from(slot).unwrap(); 16],
    }
}

fn ready(labels: &[(u64, u32)], refused: &[u64]) -> Progress {
    let labels = labels.iter();
    Progress::Ready {
        labels: labels
            .map(|(flow, slot)| (FlowId(*flow), granted(*slot).next()))
            .collect(),
        refused: refused.iter().copied().map(FlowId).collect(),
    }
}

#[test]
fn a_flow_that_the_remote_end_refuses_leaves_the_others_their_labels() {
    let mut ids = counter();
    let flows = vec![FlowId(0), FlowId(1), FlowId(3)];
    let way = (&[node(2)][..], node(4), 0);
    let (mut setup, requests) = PathSetup::start(Instant::ZERO, node(1), way, flows, &mut ids);
    let remote = RouteReply::Done(vec![granted(40), Granted::NONE, granted(42)]);
    let Progress::Pending(last) = setup.on_reply(requests[0].id, remote, &mut ids) else {
        panic!("it goes on");
    };
    assert_eq!(last[0].request, pass_on(node(4), &[40, 42]));
    let relay = RouteReply::Done(vec![granted(20), granted(22)]);
    assert_eq!(
        setup.on_reply(last[0].id, relay, &mut ids),
        ready(&[(0, 20), (3, 22)], &[1])
    );
}

#[test]
fn where_all_flows_are_unknown_the_path_is_not_at_fault() {
    let mut ids = counter();
    let mut answer = |flow, reply| {
        let way = (&[][..], node(4), 0);
        let flows = vec![FlowId(flow)];
        let (mut setup, requests) = PathSetup::start(Instant::ZERO, node(1), way, flows, &mut ids);
        setup.on_reply(requests[0].id, reply, &mut ids)
    };
    let refused = || RouteReply::Refused(Refused::UnknownFlow);
    let none = || RouteReply::Done(vec![Granted::NONE]);
    assert_eq!(answer(7, refused()), ready(&[], &[7]));
    assert_eq!(answer(7, none()), ready(&[], &[7]));
    // Without a label for its probes, a path is unusable.
    let failed = Progress::Failed(Refused::UnknownFlow);
    assert_eq!(answer(0, refused()), failed);
    assert_eq!(answer(0, none()), failed);
}

#[test]
fn only_the_remote_end_may_say_that_a_flow_is_unknown() {
    let mut ids = counter();
    let (relay, remote) = (node(2), node(4));
    let mut answer = |to: NodeId, reply| {
        let flows = vec![FlowId(7), FlowId(9)];
        let way = (&[relay][..], remote, 0);
        let (mut setup, requests) = PathSetup::start(Instant::ZERO, node(1), way, flows, &mut ids);
        if to == remote {
            return setup.on_reply(requests[0].id, reply, &mut ids);
        }
        let granted = RouteReply::Done(vec![granted(1), granted(2)]);
        let Progress::Pending(requests) = setup.on_reply(requests[0].id, granted, &mut ids) else {
            panic!("it goes on");
        };
        assert_eq!(requests[0].node, to);
        setup.on_reply(requests[0].id, reply, &mut ids)
    };
    let unknown = || RouteReply::Refused(Refused::UnknownFlow);
    let none = || RouteReply::Done(vec![Granted::NONE, Granted::NONE]);
    let one = || RouteReply::Done(vec![granted(1), Granted::NONE]);
    assert_eq!(answer(remote, unknown()), ready(&[], &[7, 9]));
    assert_eq!(answer(remote, none()), ready(&[], &[7, 9]));
    assert!(matches!(answer(remote, one()), Progress::Pending(_)));
    let failed = |why| Progress::Failed(why);
    assert_eq!(answer(relay, unknown()), failed(Refused::UnknownFlow));
    assert_eq!(answer(relay, none()), failed(Refused::BadLabel));
    assert_eq!(answer(relay, one()), failed(Refused::BadLabel));
}

/// The first relay's request, if these are the labels of the next node.
fn pass_on(next: NodeId, slots: &[u32]) -> RouteRequest {
    let to = slots.iter().map(|slot| GrantedNext {
        next: granted(*slot).next(),
        grant: granted(*slot).grant,
    });
    let to = to.collect();
    RouteRequest::PassOn { next, to }
}

fn counter() -> impl FnMut() -> RequestId {
    let mut next = 0;
    move || {
        next += 1;
        RequestId(next)
    }
}

#[test]
fn two_rounds_and_the_remote_end_first() {
    let mut ids = counter();
    let flows = vec![FlowId(0), FlowId(1)];
    let (mut setup, requests) = PathSetup::start(
        Instant::ZERO,
        node(1),
        (&[node(2), node(3)], node(4), 0),
        flows.clone(),
        &mut ids,
    );
    let expected = [
        RouteRequest::ReserveTransit {
            previous: node(2),
            count: 2,
        },
        RouteRequest::ReserveTerminal {
            previous: node(3),
            flows,
            path: 0,
        },
    ];
    assert!(requests.iter().map(|ask| &ask.request).eq(&expected));
    let mut progress = Progress::Pending(Vec::new());
    for (ask, slot) in requests.iter().zip([30, 40]).rev() {
        assert!(setup.waits_for(ask.node, ask.id));
        assert!(!setup.waits_for(node(9), ask.id), "another node's reply");
        let reply = RouteReply::Done(vec![granted(slot), granted(slot + 1)]);
        progress = setup.on_reply(ask.id, reply, &mut ids);
    }
    let Progress::Pending(binds) = progress else {
        panic!("{progress:?}");
    };
    let bind = |label: u32, next: u32| Bind {
        label: granted(label).label,
        next: granted(next).next(),
        grant: granted(next).grant,
    };
    assert_eq!(binds[0].node, node(3));
    assert_eq!(
        binds[0].request,
        RouteRequest::Bind {
            next: node(4),
            binds: vec![bind(30, 40), bind(31, 41)]
        }
    );
    assert_eq!(binds[1].node, node(2));
    assert_eq!(binds[1].request, pass_on(node(3), &[30, 31]));
    let passed = RouteReply::Done(vec![granted(20), granted(21)]);
    assert_eq!(
        setup.on_reply(binds[1].id, passed, &mut ids),
        Progress::Pending(Vec::new())
    );
    assert_eq!(
        setup.on_reply(binds[0].id, RouteReply::Done(Vec::new()), &mut ids),
        ready(&[(0, 20), (1, 21)], &[])
    );
}

#[test]
fn the_direct_path_takes_one_round() {
    let mut ids = counter();
    let (mut setup, requests) = PathSetup::start(
        Instant::ZERO,
        node(1),
        (&[], node(4), 0),
        vec![FlowId(1)],
        &mut ids,
    );
    assert_eq!(requests.len(), 1);
    assert_eq!(
        setup.on_reply(requests[0].id, RouteReply::Done(vec![granted(4)]), &mut ids),
        ready(&[(1, 4)], &[])
    );
}

#[test]
fn a_refusal_or_another_number_of_labels_ends_it() {
    let start = |ids: &mut dyn FnMut() -> RequestId| {
        let mut ids = || ids();
        PathSetup::start(
            Instant::ZERO,
            node(1),
            (&[node(2)], node(4), 0),
            vec![FlowId(1)],
            &mut ids,
        )
    };
    let mut ids = counter();
    let (mut setup, requests) = start(&mut ids);
    assert_eq!(
        setup.on_reply(requests[0].id, RouteReply::Refused(Refused::Full), &mut ids),
        Progress::Failed(Refused::Full)
    );
    for wrong in [vec![], vec![granted(1), granted(2)]] {
        let (mut setup, requests) = start(&mut ids);
        assert_eq!(
            setup.on_reply(requests[0].id, RouteReply::Done(wrong), &mut ids),
            Progress::Failed(Refused::BadLabel)
        );
    }
    // The same for the first relay's single request: the remote end's label is released.
    let [remote_end, relay] = sessions();
    let none = || RouteReply::Done(vec![Granted::NONE]);
    let two = || RouteReply::Done(vec![granted(1), granted(2)]);
    for (reply, why) in [
        (RouteReply::Refused(Refused::TooMany), Refused::TooMany),
        (RouteReply::Done(Vec::new()), Refused::BadLabel),
        (none(), Refused::BadLabel),
        (two(), Refused::BadLabel),
    ] {
        let (mut setup, requests) = start(&mut ids);
        setup.record_session(requests[0].id, Some(remote_end));
        let given = RouteReply::Done(vec![granted(40)]);
        let Progress::Pending(last) = setup.on_reply(requests[0].id, given, &mut ids) else {
            panic!("it goes on");
        };
        setup.record_session(last[0].id, Some(relay));
        let end = setup.on_reply(last[0].id, reply, &mut ids);
        assert_eq!(end, Progress::Failed(why));
        let label = granted(40).label;
        let session = remote_end;
        assert_eq!(setup.into_held(), [HeldLabel { session, label }]);
    }
}

#[test]
fn three_relays_are_bound_from_the_remote_end_and_released_on_failure() {
    let mut ids = counter();
    let way = (&[node(2), node(3), node(4)][..], node(5), 0);
    let flows = vec![FlowId(0)];
    let (mut setup, requests) = PathSetup::start(Instant::ZERO, node(1), way, flows, &mut ids);
    let [first, second, third, remote_end] = sessions();
    let mut progress = Progress::Pending(Vec::new());
    for (ask, (session, slot)) in requests
        .iter()
        .zip([(second, 30), (third, 40), (remote_end, 50)])
    {
        setup.record_session(ask.id, Some(session));
        let given = RouteReply::Done(vec![granted(slot)]);
        progress = setup.on_reply(ask.id, given, &mut ids);
    }
    let Progress::Pending(requests) = progress else {
        panic!("it goes on");
    };
    let nodes: Vec<_> = requests.iter().map(|ask| ask.node).collect();
    assert_eq!(nodes, [node(4), node(3), node(2)]);
    assert_eq!(requests[2].request, pass_on(node(3), &[30]));
    setup.record_session(requests[2].id, Some(first));
    let given = RouteReply::Done(vec![granted(20)]);
    setup.on_reply(requests[2].id, given, &mut ids);
    let end = setup.on_reply(
        requests[0].id,
        RouteReply::Refused(Refused::BadGrant),
        &mut ids,
    );
    assert_eq!(end, Progress::Failed(Refused::BadGrant));
    let held = [(first, 20), (second, 30), (third, 40), (remote_end, 50)];
    let held = held.map(|(session, slot)| HeldLabel {
        session,
        label: granted(slot).label,
    });
    assert_eq!(setup.into_held(), held);
}

#[test]
fn what_was_given_is_held_by_the_session_of_the_answer_once_each() {
    let mut ids = counter();
    let flows = vec![FlowId(0), FlowId(1), FlowId(3)];
    let way = (&[node(2), node(3)][..], node(4), 0);
    let (mut setup, requests) = PathSetup::start(Instant::ZERO, node(1), way, flows, &mut ids);
    let [first, middle, remote_end, stray, other] = sessions();
    setup.record_session(requests[0].id, Some(middle));
    setup.record_session(requests[1].id, Some(remote_end));
    setup.record_session(RequestId(99), Some(stray));
    let remote = RouteReply::Done(vec![granted(40), Granted::NONE, granted(42)]);
    setup.on_reply(requests[1].id, remote, &mut ids);
    let relay = RouteReply::Done(vec![granted(30), granted(31), granted(32)]);
    let Progress::Pending(binds) = setup.on_reply(requests[0].id, relay, &mut ids) else {
        panic!("it goes on");
    };
    let held = |session, slot| HeldLabel {
        session,
        label: granted(slot).label,
    };
    // Bound over a newer session, so it is released over that one.
    setup.record_session(binds[0].id, Some(other));
    setup.on_reply(binds[0].id, RouteReply::Done(Vec::new()), &mut ids);
    setup.record_session(binds[1].id, Some(first));
    let passed = RouteReply::Done(vec![granted(20), granted(22)]);
    setup.on_reply(binds[1].id, passed, &mut ids);
    assert_eq!(
        setup.take_held(FlowId(3)),
        [held(first, 22), held(other, 32), held(remote_end, 42)]
    );
    assert_eq!(setup.take_held(FlowId(3)), []);
    assert_eq!(setup.take_held(FlowId(1)), [], "the far end refused it");
    // The relay's label for the refused flow was granted over the first session and never bound.
    assert_eq!(
        setup.into_held(),
        [
            held(middle, 31),
            held(first, 20),
            held(other, 30),
            held(remote_end, 40)
        ]
    );
}

#[test]
fn what_came_by_a_session_that_is_over_is_not_given_back() {
    let mut ids = counter();
    let way = (&[node(2)][..], node(4), 0);
    let flows = vec![FlowId(0)];
    let (mut setup, requests) = PathSetup::start(Instant::ZERO, node(1), way, flows, &mut ids);
    setup.record_session(requests[0].id, None);
    setup.on_reply(
        requests[0].id,
        RouteReply::Done(vec![granted(20)]),
        &mut ids,
    );
    assert_eq!(setup.into_held(), []);
}

/// Distinct sessions of one endpoint.
pub(crate) fn sessions<const COUNT: usize>() -> [SessionId; COUNT] {
    let mut provider = SimProvider::new(Seed::from_number(1));
    let own = Identity::generate(&mut provider).unwrap();
    let mut endpoint = Endpoint::new(Config::default(), AppId(1), provider, Instant::ZERO).unwrap();
    let network = Network {
        secret: Secret32::new([7; 32]),
        previous: None,
    };
    let listen = Listen::new(own, InstanceId(1)).with_network(network);
    endpoint.listen(Instant::ZERO, listen).unwrap();
    let addresses = (1..).map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
    let mut sessions = addresses.zip(1..).map(|(address, number)| {
        let target = Target {
            addresses: vec![address],
            server: ServerIdentity::Node(node(number)),
            credentials: Credentials::Peer,
        };
        endpoint.connect(Instant::ZERO, target).unwrap()
    });
    [(); COUNT].map(|()| sessions.next().unwrap())
}
