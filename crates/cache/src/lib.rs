//! The decisions of a shared HTTP cache (RFC 9111), without socket, file or clock: time is passed in as [`Seconds`].
//!
//! ```text
//! response ─► storing: may_store ─► Lifetime, storable_fields, vary, tags, groups ─► the store
//! request  ─► directives ─► variant_key ─► the store ─► Lifetime::assess ─► conditions ─► response
//!                                                              └─► validation_fields ─► origin ─► is_for, freshen
//! unsafe request, its response ─► invalidated, invalidated_groups
//! ```
//!
//! # A hit
//!
//! ```
//! use http::{HeaderMap, HeaderValue, header};
//! use sealion_cache::{Assessment, Policy, RequestDirectives, StoreRequest, may_store};
//! use sealion_http::Method;
//!
//! let mut fields = HeaderMap::new();
//! fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=60, stale-while-revalidate=10"));
//! let request = StoreRequest { method: Method::Get, has_authorization: false, directives: RequestDirectives::default() };
//! let (requested, received) = (1_800_000_000, 1_800_000_001);
//! let lifetime = may_store(&Policy::default(), &request, 200, &fields, requested, received)?;
//!
//! let directives = RequestDirectives::default();
//! assert_eq!(lifetime.assess(&directives, received + 58), Assessment::Fresh);
//! assert_eq!(lifetime.assess(&directives, received + 59), Assessment::StaleWhileRevalidate);
//! assert_eq!(lifetime.assess(&directives, received + 69), Assessment::Stale { may_serve_on_error: false });
//! # Ok::<(), sealion_cache::NotStored>(())
//! ```

mod accel;
mod conditions;
mod directives;
mod freshness;
mod invalidation;
mod policy;
#[cfg(test)]
mod sample;
mod search;
mod slice;
mod status_field;
mod storing;
mod surrogate;
mod tags;
mod targeted;
mod validation;
mod vary;

pub use conditions::{Precondition, evaluate, range_applies};
pub use directives::RequestDirectives;
pub use freshness::{Assessment, Lifetime, is_error_for_stale};
pub use invalidation::{groups, invalidated, invalidated_groups};
pub use policy::Policy;
pub use search::SearchVariance;
pub use slice::{content_range, strong_validator};
pub use status_field::{CacheStatus, Forward};
pub use storing::{NotStored, StoreRequest, has_lifetime, may_store, storable_fields};
pub use tags::tags;
pub use validation::{describes, freshen, is_for, replaces_stored, update, validation_fields};
pub use vary::{AcceptedCodings, make_canonical, variant_key, vary};

/// Whole seconds since 1970-01-01.
pub type Seconds = u64;
