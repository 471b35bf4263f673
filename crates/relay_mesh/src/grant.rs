//! Checks for allocating labels to a neighbour and binding its labels.

use crypto::{Label, Provider, Secret32, equal};
use wire::NodeId;

use crate::hop::{HopForm, HopKeyMaker, HopKind, LabelName, NextLabel};
use crate::link::{End, LinkRoot};
use crate::link_terms::LinkTerms;

/// Creates and checks the grants of the labels of one link; both ends have the same key.
///
/// A node that allocates a label for frames from a previous hop returns with it the first 16 bytes
/// of HMAC-SHA-256(Expand(exporter, "tw1 grant"), end 1 | label 4 | generation 1 | requester 32 |
/// hop key 0 or 16) under the exporter of its session with that hop; the end is 0 if it dialed,
/// else 1. The hop binds the label only for that requester, and only labels of the other end, so
/// nobody can direct it at a label of another.
#[derive(Debug)]
pub(crate) struct GrantKey {
    key: Secret32,
    end: End,
}

/// Authorization that a requester shows to the previous hop.
pub(crate) type Grant = [u8; 16];

impl GrantKey {
    pub(crate) fn new<P: Provider>(provider: &P, root: LinkRoot<'_>) -> Self {
        Self {
            key: root.exporter.expand(provider, GRANT, &[]),
            end: root.end,
        }
    }

    pub(crate) fn grant<P: Provider>(
        &self,
        provider: &P,
        next: &NextLabel,
        requester: NodeId,
    ) -> Grant {
        self.made_by(self.end.sends(), provider, next, requester)
    }

    fn made_by<P: Provider>(
        &self,
        end: u8,
        provider: &P,
        next: &NextLabel,
        requester: NodeId,
    ) -> Grant {
        let NextLabel { name, form } = next;
        let mac = provider.hmac_sha256(
            self.key.expose(),
            &[
                &[end],
                &name.slot.to_be_bytes(),
                &[name.generation],
                &requester.0,
                form.key(),
            ],
        );
        mac.first_chunk().copied().unwrap_or_default()
    }

    /// Whether the other end issued `grant` for `next` to `requester`; in constant time.
    pub(crate) fn check<P: Provider>(
        &self,
        provider: &P,
        next: &NextLabel,
        requester: NodeId,
        grant: &Grant,
    ) -> bool {
        let expected = self.made_by(self.end.receives(), provider, next, requester);
        equal(&expected, grant)
    }
}

const GRANT: Label = Label::new("tw1 grant");

/// Keys of a link that seal no frame, and both ends' terms; one for all shards.
#[derive(Debug)]
pub(crate) struct LinkGate {
    pub(crate) grants: GrantKey,
    kind: HopKind,
    pub(crate) terms: LinkTerms,
    hop_keys: HopKeyMaker,
}

impl LinkGate {
    pub(crate) fn new<P: Provider>(provider: &P, root: LinkRoot<'_>, kind: HopKind) -> Self {
        Self {
            grants: GrantKey::new(provider, root),
            kind,
            terms: LinkTerms::INITIAL,
            hop_keys: HopKeyMaker::new(provider, root.exporter),
        }
    }

    /// Returns the protection of a new label's frames: a tag only if both ends accept that.
    pub(crate) fn form<P: Provider>(&mut self, provider: &P, name: LabelName) -> HopForm {
        match (self.kind, self.terms.kind) {
            (HopKind::TagOnly, HopKind::TagOnly) => {
                HopForm::TagOnly(self.hop_keys.make(provider, name))
            }
            (HopKind::Sealed, _) | (_, HopKind::Sealed) => HopForm::Sealed,
        }
    }

    /// Whether frames to the other end may have the protection that its label requires.
    pub(crate) const fn allows(&self, form: &HopForm) -> bool {
        matches!(
            (form, self.kind),
            (HopForm::Sealed, _) | (_, HopKind::TagOnly)
        )
    }
}

#[cfg(test)]
mod tests {
    use crypto::{Initial, Role, Secret32};
    use netsim::provider::SimProvider;
    use wire::Seed;

    use super::*;
    use crate::hop::{HopForm, HopKey, LabelName};
    use crate::link::End;

    #[test]
    fn mesh_a1_a_grant_binds_end_label_generation_form_and_requester() {
        let provider = SimProvider::new(Seed::from_number(1));
        let agreed = Initial::new(&provider, None).agree(&provider, &Secret32::new([3; 32]));
        let exporter = agreed.traffic(&provider, &[0; 32]).split(Role::Dialler).2;
        let key = |end| {
            let exporter = &exporter;
            GrantKey::new(&provider, LinkRoot { exporter, end })
        };
        let (giver, key) = (key(End::Accepter), key(End::Dialler));
        let name = LabelName {
            slot: 7,
            generation: 1,
        };
        let other_slot = LabelName { slot: 8, ..name };
        let other_use = LabelName {
            generation: 2,
            ..name
        };
        let form = HopForm::TagOnly(HopKey([4; 16]));
        let bare = NextLabel { name, form };
        let name = NextLabel::from(name);
        let node = NodeId([1; 32]);
        let grant = giver.grant(&provider, &name, node);
        assert!(key.check(&provider, &name, node, &grant));
        assert!(!giver.check(&provider, &name, node, &grant), "its own");
        assert!(!key.check(&provider, &other_slot.into(), node, &grant));
        assert!(!key.check(&provider, &other_use.into(), node, &grant));
        assert!(!key.check(&provider, &bare, node, &grant));
        let tagged = giver.grant(&provider, &bare, node);
        assert!(key.check(&provider, &bare, node, &tagged));
        let form = HopForm::TagOnly(HopKey([5; 16]));
        let other_key = NextLabel { form, ..bare };
        assert!(!key.check(&provider, &other_key, node, &tagged));
        assert!(!key.check(&provider, &name, NodeId([2; 32]), &grant));
        let mut forged = grant;
        forged[15] ^= 1;
        assert!(!key.check(&provider, &name, node, &forged));
    }

    #[test]
    fn mesh_a1_a_sealed_label_and_a_sealed_end_know_no_tags() {
        let provider = SimProvider::new(Seed::from_number(1));
        let agreed = Initial::new(&provider, None).agree(&provider, &Secret32::new([1; 32]));
        let exporter = agreed.traffic(&provider, &[0; 32]).split(Role::Dialler).2;
        let root = LinkRoot {
            exporter: &exporter,
            end: End::Accepter,
        };
        let name = LabelName {
            slot: 1,
            generation: 0,
        };
        let both = [HopKind::Sealed, HopKind::TagOnly];
        for (own, other) in both
            .into_iter()
            .flat_map(|own| both.map(|other| (own, other)))
        {
            let mut gate = LinkGate::new(&provider, root, own);
            assert!(!gate.form(&provider, name).is_tag_only(), "nothing said");
            gate.terms.kind = other;
            let form = gate.form(&provider, name);
            let is_agreed = (own, other) == (HopKind::TagOnly, HopKind::TagOnly);
            assert_eq!(form.is_tag_only(), is_agreed, "{own:?} {other:?}");
            assert!(gate.allows(&HopForm::Sealed));
            let tagged = HopForm::TagOnly(HopKey([1; 16]));
            assert_eq!(gate.allows(&tagged), own == HopKind::TagOnly);
        }
    }
}
