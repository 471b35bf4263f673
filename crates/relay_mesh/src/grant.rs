//! Grants: authorization to use another node's label as the next one.

use crypto::{Label, Provider, Secret32, equal};
use wire::NodeId;

use crate::hop_key::NextLabel;
use crate::link::{End, LinkRoot};

/// Creates and checks the grants of the labels of one link; both ends have the same key.
///
/// A node that allocates a label for frames from a previous hop returns with it the first 16 bytes
/// of HMAC-SHA-256(Expand(exporter, "tw1 grant"), end 1 | label 4 | generation 1 | requester 32 |
/// hop key 0 or 16) under the exporter of its session with that hop. The end is 0 if it dialed and
/// 1 if it was dialed; the hop key is present if frames have a tag only. The hop binds the label
/// only for the requester in the grant, so nobody can direct it at a label that was allocated to
/// another, and only labels of the other end, not its own.
#[derive(Debug)]
pub struct GrantKey {
    key: Secret32,
    end: End,
}

/// Authorization that a requester shows to the previous hop.
pub type Grant = [u8; 16];

impl GrantKey {
    /// Derives the key of one end of a link.
    pub(crate) fn new<P: Provider>(provider: &P, root: LinkRoot<'_>) -> Self {
        Self {
            key: root.exporter.expand(provider, GRANT, &[]),
            end: root.end,
        }
    }

    /// Returns this end's grant of `next` for `requester`.
    pub fn grant<P: Provider>(&self, provider: &P, next: &NextLabel, requester: NodeId) -> Grant {
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

    /// Returns whether the other end issued `grant` for `next` to `requester`; compares in constant
    /// time.
    pub fn check<P: Provider>(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::{Initial, Role};
    use netsim::provider::SimProvider;
    use wire::Seed;

    use crate::hop::LabelName;
    use crate::hop_key::{HopForm, HopKey};

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
}
