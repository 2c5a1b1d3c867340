//! NGINX article, 2021: curl fetches a file of 1 GB that fits the page cache over one connection, N = 10, with and
//! without kernel TLS.

use super::{Cell, GB, MB, Scale, Study, StudyName, both_servers_and};
use crate::load::{Extent, Read, Suite};

pub(super) fn study(scale: Scale) -> Study {
    let (size, rounds) = match scale {
        Scale::Smoke => (4 * MB, 2),
        Scale::Quick => (64 * MB, 5),
        Scale::Default => (GB, 10),
        Scale::Full => (GB, 100),
    };
    // As curl does: decrypt, and one transfer is one sample.
    let cell =
        Cell { read: Read::Decrypt, suite: Suite::Aes256Gcm, ..Cell::closed(size, None, 1, Extent::Requests(1)) };
    // The article's nginx: as many workers as cores, an access log, files opened for each request.
    let arms = both_servers_and(&["nginx-default", "nginx-default-ktls"]);
    Study { name: StudyName::NginxArticle, cells: vec![cell], rounds, arms, setup_cost: false }
}
