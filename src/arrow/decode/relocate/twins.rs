//! Copies of dictionaries at other places.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ArrayPlace, Relocator};
use crate::arrow::decode::columns::{Columns, Dictionary, ReceivedDictionaries};
use crate::error::Result;

/// The dictionaries at one place.
#[derive(Debug)]
pub(super) struct Twins {
    place: ArrayPlace,
    /// The originals.
    latest: Arc<ReceivedDictionaries>,
    copies: Arc<ReceivedDictionaries>,
}

impl Relocator {
    /// The latest dictionaries, at `place`.
    pub(in crate::arrow::decode) fn dictionaries(
        &mut self,
        latest: &Arc<ReceivedDictionaries>,
        place: &ArrayPlace,
    ) -> Result<Arc<ReceivedDictionaries>> {
        if latest
            .values()
            .all(|dictionary| place.is_on(dictionary.columns.device()))
        {
            return Ok(Arc::clone(latest));
        }
        let index = self.twins.iter().position(|twins| match &twins.place {
            ArrayPlace::Host => place.is_on(None),
            ArrayPlace::Gpu(device) => place.is_on(Some(device)),
        });
        let known = index.map(|index| &self.twins[index]);
        if let Some(twins) = known
            && Arc::ptr_eq(&twins.latest, latest)
        {
            return Ok(Arc::clone(&twins.copies));
        }
        let known = known.map(|twins| (Arc::clone(&twins.latest), Arc::clone(&twins.copies)));
        let mut copies = BTreeMap::new();
        for (id, dictionary) in latest.iter() {
            let twin = known.as_ref().and_then(|(was, copies)| {
                let was = was.get(id)?;
                Arc::ptr_eq(&was.columns, &dictionary.columns).then(|| copies.get(id))?
            });
            let columns = match twin {
                Some(twin) => Arc::clone(&twin.columns),
                None if place.is_on(dictionary.columns.device()) => Arc::clone(&dictionary.columns),
                None => Arc::new(self.twin(&dictionary.columns, place)?),
            };
            let dictionary = dictionary.clone();
            copies.insert(
                *id,
                Dictionary {
                    columns,
                    ..dictionary
                },
            );
        }
        let twins = Twins {
            place: place.clone(),
            latest: Arc::clone(latest),
            copies: Arc::new(copies),
        };
        let copies = Arc::clone(&twins.copies);
        match index {
            Some(index) => self.twins[index] = twins,
            None => self.twins.push(twins),
        }
        Ok(copies)
    }

    /// A copy of a dictionary at another place.
    fn twin(&mut self, dictionary: &Arc<Columns>, place: &ArrayPlace) -> Result<Columns> {
        let mut columns = Columns {
            nodes: dictionary.nodes.clone(),
            buffers: dictionary.buffers.clone(),
            children: dictionary.children.clone(),
            ..Columns::default()
        };
        // Inner dictionaries are copied too.
        let none = vec![false; columns.buffers.len()];
        self.replace(&mut columns, &none, Some(dictionary), place)?;
        Ok(columns)
    }
}
