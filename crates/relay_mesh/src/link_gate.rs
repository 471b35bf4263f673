//! What it takes to give labels out to a neighbour, and to bind those that it gave out.

use crypto::Provider;

use crate::grant::GrantKey;
use crate::hop::{HopKind, LabelName};
use crate::hop_key::{HopForm, HopKeyMaker};
use crate::link::LinkRoot;
use crate::link_terms::LinkTerms;

/// Keys of a link that make no frame, and what both ends want of its frames; one for all shards.
#[derive(Debug)]
pub(crate) struct LinkGate {
    pub(crate) grants: GrantKey,
    /// How frames with the neighbour are protected, as far as that is ours to say.
    kind: HopKind,
    /// What its node said.
    pub(crate) terms: LinkTerms,
    hop_keys: HopKeyMaker,
}

impl LinkGate {
    /// Makes the keys of a link from its session's exporter.
    pub(crate) fn new<P: Provider>(provider: &P, root: LinkRoot<'_>, kind: HopKind) -> Self {
        Self {
            grants: GrantKey::new(provider, root),
            kind,
            terms: LinkTerms::UNSAID,
            hop_keys: HopKeyMaker::new(provider, root.exporter),
        }
    }

    /// Says how frames to a label are protected that is given out for those of this link: by a tag
    /// only where both ends take that.
    pub(crate) fn form<P: Provider>(&mut self, provider: &P, name: LabelName) -> HopForm {
        match (self.kind, self.terms.kind) {
            (HopKind::TagOnly, HopKind::TagOnly) => {
                HopForm::TagOnly(self.hop_keys.make(provider, name))
            }
            (HopKind::Sealed, _) | (_, HopKind::Sealed) => HopForm::Sealed,
        }
    }

    /// Whether frames may go to the other end as its label wants them.
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
