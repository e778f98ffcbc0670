//! Attributes by the semantic conventions: what each kind of operation carries, and how a value is made.
//!
//! Job: the tables behind the `rich` shape. Place in the flow: read by `rich` for every span. Limits: a text value is at
//! most [`TEXT_BYTES_MAX`] bytes and is built on the stack. Names: <https://opentelemetry.io/docs/specs/semconv/>.
//!
//! Cardinality as in real services. What one line of code fixes is a [`Variant`]: span name, method and route, or
//! statement, table and operation, come together and never mix. A trace is one visitor's request, so what belongs to the
//! visitor is the same in all of its spans. The rest is drawn anew for each span:
//!
//! | value | different ones | drawn for | why |
//! | --- | --- | --- | --- |
//! | `enduser.id`, customer in `db.query.text`, request id | 2 M, 5 M, 2 M | trace | who asks; the request id is handed on |
//! | `session.id`, cart in `url.path` and `url.full` | 50,000, 200,000 | trace | sessions and carts that are open |
//! | `client.address`, user agent | 4,096, 6 | trace | visitors come by way of an edge network |
//! | thread name and id, database server | 64, 64, 6 | trace | one request stays on its thread and connections |
//! | peer address, peer port, partition | 96, 28,232, 96 | trace | pods, ephemeral ports; a visitor's messages stay in order |
//! | order, product and charge, message key, row in a writing statement | 200,000, 5 M | span | a request touches many |
//! | `messaging.kafka.offset` | 50,000 | span | the last seconds, at the end of long partitions |
//! | message size, returned rows | 16,384, 50 | span | bodies and pages |
//! | response status, host | 5 (nine of ten are 200), 3 | span | short lists |
//!
//! There is no `messaging.message.id`: Kafka has none, its conventions name key and offset.

use super::super::dice::Dice;

/// Longest text value, bytes: the longest template (a statement with an id) is under 160.
const TEXT_BYTES_MAX: usize = 192;

/// A kind of operation.
#[derive(Debug)]
pub(super) struct Operation {
    /// `SpanKind` on the wire.
    pub(super) kind: u64,
    /// The lines of code that make such spans.
    pub(super) variants: &'static [Variant],
    /// Attributes, the usual ones first: a span has the first four to nine.
    pub(super) attributes: [(&'static str, Make); 9],
}

/// What one line of code fixes.
#[derive(Debug)]
pub(super) struct Variant {
    /// Span name.
    pub(super) name: &'static str,
    /// Texts that attributes take from here, by their place.
    texts: &'static [&'static str],
    /// The line itself, where an attribute tells it.
    line: i64,
    /// Whether its id is the visitor's own (a cart, a customer) and not one of many.
    is_visitors: bool,
}

/// What the values of one span are drawn from.
#[derive(Debug)]
pub(super) struct Draw<'a> {
    /// Rolled anew for each value.
    pub(super) span: Dice,
    /// The same for all spans of a trace, since a trace is one visitor's request: always rolled from here.
    pub(super) visitor: &'a Dice,
    pub(super) variant: &'a Variant,
}

/// How a value is made.
#[derive(Debug)]
pub(super) enum Make {
    /// The same text always.
    Always(&'static str),
    /// This text of the variant.
    Of(usize),
    /// An id between this text of the variant and the next.
    AroundOf(usize, Id),
    /// The variant's line.
    Line,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// A text with an id in the middle.
    Around(&'static str, Id, &'static str),
    /// An int below the bound.
    Below(u64),
    /// An int from the first on, so many different ones.
    From(u64, u64),
    /// One of these ints.
    OneInt(&'static [i64]),
    /// True in so many of 1,000.
    Chance(u64),
    /// Made from the visitor's dice: the same in all spans of a trace.
    Visitors(&'static Make),
}

/// An id inside a text.
#[derive(Debug)]
pub(super) enum Id {
    /// A decimal number below the bound.
    Number(u64),
    /// One of 4,096 addresses of an edge network.
    Visitor,
    /// The address of one of the shop's 96 pods.
    Pod,
}

/// What [`Make::make`] made; a text is in the buffer that it was given.
pub(super) enum Made {
    Text,
    Int(i64),
    Bool(bool),
}

/// A text on the stack.
pub(super) struct Text {
    bytes: [u8; TEXT_BYTES_MAX],
    length: usize,
}

impl Default for Text {
    fn default() -> Text {
        Text { bytes: [0; TEXT_BYTES_MAX], length: 0 }
    }
}

impl Text {
    /// The text so far.
    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).expect("only whole texts and ASCII digits are pushed")
    }

    fn push(&mut self, text: &str) {
        self.bytes[self.length..self.length + text.len()].copy_from_slice(text.as_bytes());
        self.length += text.len();
    }

    fn push_byte(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }

    fn number(&mut self, number: u64) {
        if number >= 10 {
            self.number(number / 10);
        }
        self.push_byte(b'0' + (number % 10).to_le_bytes()[0]);
    }

    /// A UUID of version 4's length, hyphens where they belong.
    pub(super) fn uuid(&mut self, dice: &mut Dice) {
        let (mut bits, mut left) = (0, 0);
        for position in 0..36 {
            if matches!(position, 8 | 13 | 18 | 23) {
                self.push_byte(b'-');
                continue;
            }
            if left == 0 {
                (bits, left) = (dice.roll(), 16);
            }
            self.push_byte(b"0123456789abcdef"[usize::from(bits.to_le_bytes()[0] & 15)]);
            bits >>= 4;
            left -= 1;
        }
    }

    fn address(&mut self, network: &str, third: u64, fourth: u64) {
        self.push(network);
        self.number(third);
        self.push(".");
        self.number(fourth);
    }
}

impl Make {
    /// Makes a value; a text goes into `text`, which is empty.
    pub(super) fn make(&self, draw: &mut Draw<'_>, text: &mut Text) -> Made {
        let variant = draw.variant;
        match self {
            Make::Visitors(make) => return make.make(&mut draw.of_visitor(), text),
            Make::Always(always) => text.push(always),
            Make::Of(place) => text.push(variant.texts[*place]),
            Make::AroundOf(place, id) => {
                text.push(variant.texts[*place]);
                let dice = if variant.is_visitors { &mut draw.of_visitor().span } else { &mut draw.span };
                id.push_to(dice, text);
                text.push(variant.texts[*place + 1]);
            }
            Make::Line => return Made::Int(variant.line),
            Make::From(first, count) => return Made::Int((first + draw.span.below(*count)).cast_signed()),
            Make::OneOf(choices) => text.push(draw.span.pick(choices)),
            Make::Around(before, id, after) => {
                text.push(before);
                id.push_to(&mut draw.span, text);
                text.push(after);
            }
            Make::Below(bound) => return Made::Int(draw.span.below(*bound).cast_signed()),
            Make::OneInt(choices) => return Made::Int(draw.span.pick(choices)),
            Make::Chance(per_mille) => return Made::Bool(draw.span.chance(*per_mille)),
        }
        Made::Text
    }
}

impl Draw<'_> {
    /// The same draw for every value of every span of the trace.
    fn of_visitor(&self) -> Draw<'_> {
        Draw { span: self.visitor.clone(), visitor: self.visitor, variant: self.variant }
    }
}

impl Id {
    fn push_to(&self, dice: &mut Dice, text: &mut Text) {
        match self {
            Id::Number(bound) => text.number(dice.below(*bound)),
            Id::Visitor => text.address("10.128.", dice.below(16), dice.below(256)),
            Id::Pod => text.address("10.0.", dice.below(4), 16 + dice.below(24)),
        }
    }
}

/// Nine of ten are 200.
const STATUS_CODES: Make = Make::OneInt(&[
    200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200,
    200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 201, 204, 304, 404,
]);
const HOSTS: Make = Make::OneOf(&[
    "cart.shop.svc.cluster.local",
    "payment.shop.svc.cluster.local",
    "identity.shop.svc.cluster.local",
]);

/// The kinds of operation, as often as they are listed.
pub(super) static OPERATIONS: [&Operation; 8] =
    [&HTTP_SERVER, &HTTP_CLIENT, &DATABASE, &DATABASE, &RPC, &MESSAGING, &INTERNAL, &HTTP_SERVER];

/// A variant that no attribute tells the line of.
const fn variant(name: &'static str, texts: &'static [&'static str]) -> Variant {
    Variant { name, texts, line: 0, is_visitors: false }
}

/// The same, and the id is the visitor's own.
const fn visitors(name: &'static str, texts: &'static [&'static str]) -> Variant {
    Variant { name, texts, line: 0, is_visitors: true }
}

static HTTP_SERVER: Operation = Operation {
    kind: 2,
    // Method, route, path around the id.
    variants: &[
        visitors(
            "GET /api/v1/carts/{cartId}/items",
            &["GET", "/api/v1/carts/{cartId}/items", "/api/v1/carts/open/self/", "/items"],
        ),
        variant(
            "POST /api/v1/orders/{orderId}",
            &["POST", "/api/v1/orders/{orderId}", "/api/v1/orders/placed/self/", ""],
        ),
        variant(
            "GET /api/v1/products/{id}",
            &["GET", "/api/v1/products/{id}", "/api/v1/products/by-category/all/", "/details"],
        ),
    ],
    attributes: [
        ("http.request.method", Make::Of(0)),
        ("http.route", Make::Of(1)),
        ("http.response.status_code", STATUS_CODES),
        ("url.path", Make::AroundOf(2, Id::Number(200_000))),
        ("client.address", Make::Visitors(&Make::Around("", Id::Visitor, ""))),
        ("url.scheme", Make::Always("https")),
        (
            "user_agent.original",
            Make::Visitors(&Make::OneOf(&[
                "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox",
                "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox",
                "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:145.0) Gecko/20100101",
                "shop-android/8.14.2 (Android 15; Pixel 9) okhttp/5.1.0",
                "shop-ios/8.14.1 (iPhone; iOS 19.1; Scale/3.00) CFNetwork/3826",
                "shop-ios/8.13.0 (iPhone; iOS 18.6; Scale/3.00) CFNetwork/1568",
            ])),
        ),
        ("server.port", Make::OneInt(&[8080, 8443])),
        ("enduser.authenticated", Make::Chance(700)),
    ],
};

static HTTP_CLIENT: Operation = Operation {
    kind: 3,
    // Method, URL around the id, host.
    variants: &[
        variant(
            "GET payment.shop.svc",
            &[
                "GET",
                "https://payment.shop.svc:8443/api/v2/charges/",
                "?expand=card,customer,refunds&limit=10",
                "payment.shop.svc.cluster.local",
            ],
        ),
        variant(
            "POST payment.shop.svc",
            &[
                "POST",
                "https://payment.shop.svc:8443/api/v2/refunds/",
                "?expand=card,customer&idempotent=true",
                "payment.shop.svc.cluster.local",
            ],
        ),
        visitors(
            "PUT cart.shop.svc",
            &[
                "PUT",
                "https://cart.shop.svc:8443/api/v1/carts/",
                "?merge=session&reprice=true&currency=EUR",
                "cart.shop.svc.cluster.local",
            ],
        ),
    ],
    attributes: [
        ("http.request.method", Make::Of(0)),
        ("url.full", Make::AroundOf(1, Id::Number(200_000))),
        ("http.response.status_code", STATUS_CODES),
        ("server.address", Make::Of(3)),
        ("server.port", Make::OneInt(&[8443])),
        ("network.peer.address", Make::Visitors(&Make::Around("", Id::Pod, ""))),
        ("network.protocol.version", Make::OneOf(&["1.1", "2"])),
        ("http.request.resend_count", Make::Below(3)),
        ("tls.resumed", Make::Chance(800)),
    ],
};

static DATABASE: Operation = Operation {
    kind: 3,
    // Statement around the id, operation, table.
    variants: &[
        visitors(
            "SELECT shop.orders",
            &[
                "SELECT o.id, o.total, o.currency, o.created_at FROM orders o WHERE o.customer_id = ",
                " ORDER BY o.created_at DESC LIMIT 50",
                "SELECT",
                "orders",
            ],
        ),
        variant(
            "INSERT shop.order_items",
            &[
                "INSERT INTO order_items (order_id, sku, quantity, price) SELECT ",
                ", sku, quantity, price FROM cart_items",
                "INSERT",
                "order_items",
            ],
        ),
        variant(
            "UPDATE shop.inventory",
            &[
                "UPDATE inventory SET reserved = reserved + 1, updated_at = now() WHERE sku_id = ",
                " AND on_hand > reserved RETURNING on_hand",
                "UPDATE",
                "inventory",
            ],
        ),
        visitors(
            "SELECT shop.customers",
            &[
                "SELECT c.id, c.email, c.locale, c.tier, c.created_at FROM customers c WHERE c.id = ",
                " AND c.deleted_at IS NULL",
                "SELECT",
                "customers",
            ],
        ),
    ],
    attributes: [
        ("db.system.name", Make::Always("postgresql")),
        ("db.query.text", Make::AroundOf(0, Id::Number(5_000_000))),
        ("db.namespace", Make::Always("shop")),
        ("db.operation.name", Make::Of(2)),
        ("server.address", Make::Visitors(&Make::Around("pg-", Id::Number(6), ".db.shop.svc.cluster.local"))),
        ("db.collection.name", Make::Of(3)),
        ("db.response.returned_rows", Make::Below(50)),
        ("server.port", Make::OneInt(&[5432])),
        ("db.pool.reused", Make::Chance(950)),
    ],
};

static RPC: Operation = Operation {
    kind: 2,
    // Service, method.
    variants: &[
        variant("shop.pricing.v1.PricingService/Quote", &["shop.pricing.v1.PricingService", "Quote"]),
        variant(
            "shop.inventory.v1.InventoryService/Reserve",
            &["shop.inventory.v1.InventoryService", "Reserve"],
        ),
        variant("shop.fraud.v1.FraudService/Score", &["shop.fraud.v1.FraudService", "Score"]),
    ],
    attributes: [
        ("rpc.system", Make::Always("grpc")),
        ("rpc.service", Make::Of(0)),
        ("rpc.method", Make::Of(1)),
        (
            "rpc.grpc.status_code",
            Make::OneInt(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 14]),
        ),
        ("server.address", HOSTS),
        (
            "rpc.request.metadata.request_id",
            Make::Visitors(&Make::Around("req-eu-central-1-", Id::Number(2_000_000), "")),
        ),
        ("network.peer.address", Make::Visitors(&Make::Around("", Id::Pod, ""))),
        ("network.peer.port", Make::Visitors(&Make::From(32_768, 28_232))),
        ("rpc.retried", Make::Chance(20)),
    ],
};

static MESSAGING: Operation = Operation {
    kind: 5,
    // Topic, operation.
    variants: &[
        variant("process shop.orders.created.v1", &["shop.orders.created.v1", "process"]),
        variant("send shop.emails.requested.v1", &["shop.emails.requested.v1", "send"]),
        variant("process shop.invoices.sent.v1", &["shop.invoices.sent.v1", "process"]),
    ],
    attributes: [
        ("messaging.system", Make::Always("kafka")),
        ("messaging.destination.name", Make::Of(0)),
        ("messaging.operation.type", Make::Of(1)),
        ("messaging.kafka.message.key", Make::Around("order-", Id::Number(200_000), "")),
        ("messaging.kafka.offset", Make::From(391_245_000, 50_000)),
        ("messaging.destination.partition.id", Make::Visitors(&Make::Around("", Id::Number(96), ""))),
        ("messaging.consumer.group.name", Make::Always("order-processor")),
        ("messaging.message.body.size", Make::Below(16_384)),
        ("messaging.redelivered", Make::Chance(10)),
    ],
};

static INTERNAL: Operation = Operation {
    kind: 1,
    // Function, file.
    variants: &[
        Variant {
            name: "CartService.recalculate",
            texts: &["com.shop.cart.CartService.recalculate", "src/main/java/com/shop/cart/CartService.java"],
            line: 214,
            is_visitors: false,
        },
        Variant {
            name: "OrderService.place",
            texts: &["com.shop.order.OrderService.place", "src/main/java/com/shop/order/OrderService.java"],
            line: 87,
            is_visitors: false,
        },
        Variant {
            name: "TaxRules.evaluate",
            texts: &["com.shop.tax.TaxRules.evaluate", "src/main/java/com/shop/tax/TaxRules.java"],
            line: 512,
            is_visitors: false,
        },
    ],
    attributes: [
        ("code.function.name", Make::Of(0)),
        (
            "thread.name",
            Make::Visitors(&Make::Around("http-nio-8080-exec-pool-1-thread-", Id::Number(64), "")),
        ),
        ("thread.id", Make::Visitors(&Make::From(40, 64))),
        ("enduser.id", Make::Visitors(&Make::Around("user-", Id::Number(2_000_000), ""))),
        ("session.id", Make::Visitors(&Make::Around("session-eu-central-1-", Id::Number(50_000), ""))),
        ("code.file.path", Make::Of(1)),
        ("code.line.number", Make::Line),
        ("feature.flag.variant", Make::OneOf(&["control", "treatment"])),
        ("cache.hit", Make::Chance(850)),
    ],
};
