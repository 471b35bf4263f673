//! Checks for allocating labels to a neighbour and binding its labels.

use crypto::Provider;

use crate::grant::GrantKey;
use crate::hop::{HopKind, LabelName};
use crate::hop_key::{HopForm, HopKeyMaker};
use crate::link::LinkRoot;
use crate::link_terms::LinkTerms;

/// Keys of a link that seal no frame, and both ends' terms; one for all shards.
#[derive(Debug)]
pub(crate) struct LinkGate {
    pub(crate) grants: GrantKey,
    /// Frame protection that this node is configured for.
    kind: HopKind,
    /// The neighbour's terms.
    pub(crate) terms: LinkTerms,
    hop_keys: HopKeyMaker,
}

impl LinkGate {
    /// Derives the keys of a link from its session's exporter.
    pub(crate) fn new<P: Provider>(provider: &P, root: LinkRoot<'_>, kind: HopKind) -> Self {
        Self {
            grants: GrantKey::new(provider, root),
            kind,
            terms: LinkTerms::UNSAID,
            hop_keys: HopKeyMaker::new(provider, root.exporter),
        }
    }

    /// Returns the protection of frames to a new label of this link: a tag only if both ends accept
    /// that.
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
    use super::*;
    use crate::hop_key::HopKey;
    use crate::link::End;
    use crypto::{Initial, Role, Secret32};
    use netsim::provider::SimProvider;
    use wire::Seed;

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
