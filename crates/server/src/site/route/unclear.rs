//! Requests with several values for a condition, where only some values meet it: an application may take any of them.
//!
//! The first reading, in which such conditions hold, decides. It may not decide about guards: a client could send a second value to be led around them.

use sealion_http::Status;

use super::condition::{Disk, Holds};
use super::{Action, RouteNumber, Routes};
use crate::placeholders::Asked;

/// Readings of a request that are compared. A request with more gets 400.
const MAX_READINGS: usize = 16;

impl Routes {
    /// The route that a search finds where unclear conditions hold. The search asks whether a route admits the request.
    ///
    /// # Errors
    /// 400: another reading finds a route with other guards, or one that leads elsewhere.
    pub(super) fn in_each_reading(
        &self,
        asked: &Asked<'_>,
        disk: Disk<'_>,
        search: impl Fn(&mut dyn FnMut(RouteNumber) -> Result<bool, Status>) -> Result<Option<RouteNumber>, Status>,
    ) -> Result<Option<RouteNumber>, Status> {
        // Whether each unclear condition holds, in the order of the search.
        let mut taken: Vec<bool> = Vec::new();
        let mut first = None;
        for _ in 0..MAX_READINGS {
            let mut unclear = 0;
            let found = search(&mut |number| {
                let route = &self.all[number];
                if !route.may_be_led_to(asked.led) {
                    return Ok(false);
                }
                match route.holds(asked, disk) {
                    None | Some(Holds::Yes) => Ok(true),
                    Some(Holds::No) => Ok(false),
                    Some(Holds::Unclear) => {
                        unclear += 1;
                        if taken.len() < unclear {
                            taken.push(true);
                        }
                        Ok(taken[unclear - 1])
                    }
                }
            })?;
            let first = *first.get_or_insert(found);
            if !self.guards_differ {
                return Ok(first);
            }
            if found != first && self.differ(found, first) {
                return Err(Status::BAD_REQUEST);
            }
            // The next reading: the last condition that held does not.
            while taken.last() == Some(&false) {
                taken.pop();
            }
            match taken.last_mut() {
                Some(last) => *last = false,
                None => return Ok(first),
            }
        }
        Err(Status::BAD_REQUEST)
    }

    /// Whether two routes have other guards, or lead to other routes.
    fn differ(&self, one: Option<RouteNumber>, other: Option<RouteNumber>) -> bool {
        let guards = |number: Option<RouteNumber>| number.map_or(self.root_guards, |number| self.all[number].guards);
        let leads = |number: Option<RouteNumber>| {
            number.is_some_and(|number| matches!(&*self.all[number].action, Action::Rewrite(_) | Action::Try(_)))
        };
        guards(one) != guards(other) || leads(one) || leads(other)
    }
}
