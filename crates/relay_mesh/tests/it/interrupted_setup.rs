//! Interrupted path set-ups: nodes that restart, and members that send arbitrary requests.

use relay_mesh::Mode;
use relay_mesh::hop::{LabelName, NextLabel};
use relay_mesh::route_request::{
    Bind, Granted, GrantedNext, RequestId, RouteRelease, RouteReply, RouteRequest,
};
use wire::{Generator, NodeId, Seed};

use crate::harness::{ENTRY, EXIT, Mesh, RELAY, START, Shape, ms, shape};
use crate::member::Harness;

#[test]
fn a_node_that_restarts_during_a_set_up_leaves_no_label_behind() {
    for mode in [Mode::Shadow, Mode::Single] {
        for index in [RELAY, EXIT, ENTRY] {
            for offset in (0..200).step_by(37) {
                let case = format!("{mode:?} {index} {offset}");
                let shape = Shape {
                    mode,
                    ..Shape::default()
                };
                let mut mesh = Mesh::new(Seed::from_number(offset), &shape);
                mesh.run(START + offset);
                mesh.kill(index);
                mesh.restart(index, 1);
                mesh.run(15_000);
                let now = mesh.now();
                let gap = mesh.player().gap(now.saturating_sub(ms(3_000)), now);
                assert!(gap < ms(100), "{case}: {gap:?}");
                assert_eq!(mesh.player().faults, 0, "{case}");
                mesh.run(40_000);
                for at in [ENTRY, EXIT, RELAY, RELAY + 1, RELAY + 2] {
                    let labels = mesh.process(at).node.labels();
                    assert!(labels <= 12, "{case}: {at} has {labels}");
                }
            }
        }
    }
}

/// What a member chooses from: the nodes, and the labels that two relays granted.
struct Draws {
    generator: Generator,
    nodes: Vec<NodeId>,
    held: [Vec<Granted>; 2],
}

impl Draws {
    fn below(&mut self, count: usize) -> usize {
        let count = u64::try_from(count).unwrap();
        usize::try_from(self.generator.below(count)).unwrap()
    }

    /// Usually the other relay, which is the valid choice.
    fn node(&mut self, side: usize) -> NodeId {
        if self.below(3) > 0 {
            return self.nodes[RELAY + 1 - side];
        }
        let any = self.below(self.nodes.len());
        self.nodes[any]
    }

    /// Some labels that a relay granted recently, and some that it never did.
    fn granted(&mut self, side: usize) -> Vec<Granted> {
        let most = if self.below(8) == 0 { 64 } else { 3 };
        let count = 1 + self.below(most);
        let one = |draws: &mut Self| {
            let len = draws.held[side].len();
            if len == 0 || draws.below(6) == 0 {
                let mut invented = Granted::NONE;
                invented.label = LabelName {
                    slot: u32::try_from(draws.below(40)).unwrap(),
                    generation: 0,
                };
                return invented;
            }
            let newest = len.saturating_sub(12);
            let place = newest + draws.below(len - newest);
            draws.held[side][place].clone()
        };
        (0..count).map(|_| one(self)).collect()
    }

    /// An arbitrary request or release.
    fn message(&mut self, side: usize, id: RequestId) -> Vec<u8> {
        let next = |granted: &Granted| GrantedNext {
            next: NextLabel {
                name: granted.label,
                form: granted.form.clone(),
            },
            grant: granted.grant,
        };
        let mut message = Vec::new();
        let request = match self.below(5) {
            0 => {
                let count = if self.below(20) == 0 {
                    64
                } else {
                    1 + self.below(4)
                };
                let any = self.below(self.nodes.len());
                Some(RouteRequest::ReserveTransit {
                    previous: self.nodes[any],
                    count: u8::try_from(count).unwrap(),
                })
            }
            1 | 2 => Some(RouteRequest::PassOn {
                next: self.node(side),
                to: self.granted(1 - side).iter().map(next).collect(),
            }),
            3 => {
                let (own, theirs) = (self.granted(side), self.granted(1 - side));
                let binds = own.iter().zip(&theirs).map(|(own, theirs)| Bind {
                    label: own.label,
                    next: next(theirs).next,
                    grant: theirs.grant,
                });
                let binds = binds.collect();
                let next = self.node(side);
                Some(RouteRequest::Bind { next, binds })
            }
            _ => None,
        };
        if let Some(request) = request {
            request.encode(id, &mut message);
        } else {
            let labels = self.granted(side).into_iter().map(|granted| granted.label);
            RouteRelease::new(labels).unwrap().encode(&mut message);
        }
        message
    }
}

#[test]
fn mesh_a1_a_members_arbitrary_requests_leave_nothing_behind() {
    for number in 0..4 {
        let shape = shape(if number % 2 == 0 {
            |_, _, _| {}
        } else {
            |_, config, _| config.shards = 3
        });
        let mut harness = Harness::with(100 + number, &shape);
        let first = harness.session();
        harness.turn_to(RELAY + 1);
        let sessions = [first, harness.session()];
        let labels = |harness: &Harness| {
            let of = |at| harness.mesh.process(at).node.labels();
            [RELAY, RELAY + 1].map(of)
        };
        let before = labels(&harness);
        let mut draws = Draws {
            generator: harness.mesh.seed.generator(77),
            nodes: [harness.mesh.ids.clone(), vec![harness.own, NodeId([9; 32])]].concat(),
            held: [Vec::new(), Vec::new()],
        };
        let start = harness.mesh.now();
        for round in 0..1_500_u64 {
            let side = draws.below(2);
            harness.speak_over(sessions[side]);
            let id = RequestId(round * 2 + u64::try_from(side).unwrap());
            let message = draws.message(side, id);
            harness.transmit(&message);
            // Some follow each other without waiting for a reply.
            if draws.below(3) == 0 {
                harness.mesh.run(1 + draws.generator.below(120));
            }
            for (RequestId(id), reply) in harness.take_answers() {
                if let RouteReply::Done(granted) = reply {
                    draws.held[usize::try_from(id % 2).unwrap()].extend(granted);
                }
            }
        }
        assert!(
            draws.held.iter().all(|held| held.len() > 100),
            "it got some"
        );
        // Unused grants expire.
        harness.mesh.run(45_000);
        let after = labels(&harness);
        let is_back = before
            .iter()
            .zip(&after)
            .all(|(before, after)| *after <= before + 4);
        assert!(is_back, "{before:?} {after:?}");
        let player = harness.mesh.player();
        assert_eq!(player.faults, 0);
        assert!(player.gap(start, harness.mesh.now()) < ms(50));
    }
}
